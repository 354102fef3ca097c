"""
``shoal verify``: compare a mirror with its source, and decode only batches that are not the same.

A partition passes four stations:

- read (:mod:`.log`): one pass over each side, which verifies each batch's CRC and keeps a row of bytes of it;
- begin (:mod:`.locate`): the offsets at which both sides begin to hold the same records;
- compare (:mod:`.compare`): rows in step, and records if rows differ, up to the next place that both have;
- explain (:mod:`.explain`): what became of the records that only one side has.

:mod:`.partition` leads a partition through them, or some ranges of one (:mod:`.places`), and :mod:`.run` all
partitions. :mod:`.across` finds records that are in another copy. :mod:`.state` keeps how
far copies are equal.
"""

from .extent import WHOLE, Extent
from .findings import Difference, DifferenceKind, NotCompared, OffsetRange, Side
from .report import Aligned, Alignment, ComparedRange, Outcome, PartitionReport, VerifyProgress, VerifyReport
from .run import DEFAULT_PATIENCE_S, verify

__all__ = [
    "DEFAULT_PATIENCE_S",
    "WHOLE",
    "Aligned",
    "Alignment",
    "ComparedRange",
    "Difference",
    "DifferenceKind",
    "Extent",
    "NotCompared",
    "OffsetRange",
    "Outcome",
    "PartitionReport",
    "Side",
    "VerifyProgress",
    "VerifyReport",
    "verify",
]
