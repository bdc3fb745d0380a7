"""Reports: pages made from what the code and the runs say themselves."""

from ba3us.report.methods_page import methods_page

__all__ = ["methods_page"]
