"""
``shoal verify``: compare a mirror with its source, and decode only where batches are not the same.

What happens to a partition: where both sides begin is found out
(:mod:`.alignment`); both are read once, and of each batch a few numbers are
kept, after its CRC was verified (:mod:`.reading`, :mod:`.digest`); the two
streams of numbers are compared (:mod:`.diff`), the records themselves where
the numbers do not agree (:mod:`.decoded`), and what was found is added up
(:mod:`.tally`).
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
