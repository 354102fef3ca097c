"""
Find the position that matches the destination, before anything is sent to it.

A partition resumes after a start, a restart, a retry by Spark, or an unknown outcome. The committed position
is a map from destination offsets to source offsets, which leads to all that the mirror may have written. So
the end of the destination's log is looked up in it. If the last batch is not the mirror's, or a log lost what
the map says, that is an incident: its policy decides whether the partition stops or continues.
"""

from .adopt import Watch
from .align import resume_partitions, still_aligned

__all__ = ["Watch", "resume_partitions", "still_aligned"]
