"""Partial domain adaptation: BA³US, the systems it is compared with, and trust without target labels."""

__version__ = "0.1.0"
