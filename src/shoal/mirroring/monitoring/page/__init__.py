"""
The live page of a mirror, and the report of its run.

Both are one HTML file without external resources, which shows one object (``page.py``). The live page polls
the object; a report has it inside.
"""

from .page import About, MirrorPage, Processes

__all__ = ["About", "MirrorPage", "Processes"]
