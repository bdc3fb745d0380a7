"""The automatic choice among methods, and its guard."""
