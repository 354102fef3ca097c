"""
Find out where the destination really is, before anything is sent to it.

After a start, a restart, a retry by Spark or an unknown outcome, the pair says
where the mirror was, and the destination's log end says how much was written
after that. Exactly so many records are skipped in the source. The last batch
must be the one that the source has there. Where it is not, somebody else
wrote, or a tail was lost: an incident, which stops the partition with a
sentence or is gone on from, as its policy says.
"""

from .adopt import Watch
from .align import leader_epochs_of, resume_partitions, still_aligned, take_over

__all__ = ["Watch", "leader_epochs_of", "resume_partitions", "still_aligned", "take_over"]
