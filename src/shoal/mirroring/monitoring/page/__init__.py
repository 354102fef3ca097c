"""
What people look at: the live page of a mirror, and the report of its run.

Both are one HTML file without outside resources, which shows one object
(``data.py``): asked for once a second, or written into the file.
"""

from .observer import About
from .watch import Watch

__all__ = ["About", "Watch"]
