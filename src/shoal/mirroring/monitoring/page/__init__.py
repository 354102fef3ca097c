"""
The live page of a mirror, and the report of its run.

Both are one HTML file without external resources, which shows one object (``state.py``). The live page polls
the object; a report has it inside.
"""

from .state import About
from .watch import MirrorPage

__all__ = ["About", "MirrorPage"]
