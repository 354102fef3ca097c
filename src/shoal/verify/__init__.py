"""
``shoal verify``: compare a mirror with its source, and decode only batches that are not the same.

A partition passes four stations:

- read (:mod:`.reading`, :mod:`.digest`): one pass over each side, which
  verifies each batch's CRC and keeps a few numbers of it;
- align (:mod:`.alignment`, :mod:`.common_start`): the offsets at which both
  sides begin to hold the same records;
- compare (:mod:`.diff`): digests in step, and records if digests do not agree
  (:mod:`.side`, :mod:`.meeting`, :mod:`.matching`, :mod:`.gaps`, :mod:`.cleaned`);
- report (:mod:`.tally`, :mod:`.report`): the findings as ranges and counts.

:mod:`.comparison` leads a partition through them, :mod:`.portion` some ranges of one, and :mod:`.run` all
partitions. :mod:`.state` keeps how far they are equal.
"""

from .extent import WHOLE, Extent
from .report import (
    Aligned,
    Alignment,
    ComparedRange,
    Difference,
    DifferenceKind,
    NotCompared,
    OffsetRange,
    Outcome,
    PartitionReport,
    Side,
)
from .run import DEFAULT_PATIENCE_S, verify
from .tally import MOST_RANGES
from .whole_report import VerifyProgress, VerifyReport

__all__ = [
    "DEFAULT_PATIENCE_S",
    "MOST_RANGES",
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
