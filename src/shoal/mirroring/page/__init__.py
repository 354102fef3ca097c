"""
What people look at: the live page of a mirror, and the report of its run.

Both are one HTML file without outside resources, which shows one object
(``data.py``): asked for once a second, or written into the file.
"""

from .data import About, Ending
from .observer import Observer
from .report import check_report, write_report
from .server import PageServer

__all__ = ["About", "Ending", "Observer", "PageServer", "check_report", "write_report"]
