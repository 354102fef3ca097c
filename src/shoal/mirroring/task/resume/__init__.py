"""
Find the position that matches the destination, before anything is sent to it.

A partition resumes after a start, a restart, a retry by Spark, or an unknown
outcome. The committed position is the mirror's last known one, and the
destination's log end shows how many records were written behind it. The mirror
skips exactly as many records in the source. The destination's last batch must be
the one that the source has there. If it is not, another program wrote to the
destination, or a log lost its tail. That is an incident: its policy decides
whether the partition stops or continues.
"""

from .adopt import Watch
from .align import leader_epochs_of, resume_partitions, still_aligned, take_over

__all__ = ["Watch", "leader_epochs_of", "resume_partitions", "still_aligned", "take_over"]
