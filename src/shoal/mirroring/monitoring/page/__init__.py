"""
The live page of a mirror, and the report of its run.

Both are one HTML file without external resources, which shows one object (``data.py``). The live page polls
the object once a second; a report has it inside.
"""

from .sampler import About
from .watch import MirrorPage

__all__ = ["About", "MirrorPage"]
