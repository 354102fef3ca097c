"""
``shoal verify``: compare a mirror with its source, and decode only batches that are not the same.

A partition passes four stations:

- read (:mod:`.reading`, :mod:`.digest`): one pass over each side, which
  verifies each batch's CRC and keeps a few numbers of it;
- align (:mod:`.alignment`, :mod:`.common_start`): the offsets at which both
  sides begin to hold the same records;
- compare (:mod:`.diff`): digests in step, and records if digests do not agree
  (:mod:`.side`, :mod:`.meeting`, :mod:`.matching`);
- report (:mod:`.tally`, :mod:`.report`): the findings as ranges and counts.

:mod:`.comparison` leads a partition through them, and :mod:`.run` all partitions.
"""

from .report import (
    Aligned,
    Alignment,
    Difference,
    DifferenceKind,
    NotCompared,
    OffsetRange,
    Outcome,
    PartitionReport,
    Side,
    VerifyProgress,
    VerifyReport,
)
from .run import DEFAULT_PATIENCE_S, verify
from .tally import MOST_RANGES

__all__ = [
    "DEFAULT_PATIENCE_S",
    "MOST_RANGES",
    "Aligned",
    "Alignment",
    "Difference",
    "DifferenceKind",
    "NotCompared",
    "OffsetRange",
    "Outcome",
    "PartitionReport",
    "Side",
    "VerifyProgress",
    "VerifyReport",
    "verify",
]
