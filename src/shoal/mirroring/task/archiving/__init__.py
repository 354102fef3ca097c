"""
The task of a mirror whose destination is an archive: it fetches whole batches, and writes segments.

- :mod:`.spool`: the local directory in which segments are gathered.
- :mod:`.partition`: one partition: what the archive has of it, and the segment that is open.
- :mod:`.task`: the loop that fetches from the leaders of the source, and gives segments to the archive.

An archive holds its position itself: it is the end of the last object that counts. So a task commits nothing,
and one that is killed leaves nothing to repair.
"""

from .task import follow_documents

__all__ = ["follow_documents"]
