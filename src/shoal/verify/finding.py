"""The findings of a comparison."""

from __future__ import annotations

import enum
from typing import NamedTuple, TypeAlias

from .digest import Digest, DigestRun, Entry

__all__ = ["AnyFinding", "Finding", "Gap", "Kind", "Part", "SameBatches", "SameRecords", "SameRun"]


class Kind(enum.Enum):
    """How the batches or records of a finding compare; the value is its name in reports."""

    #: A batch that has the same bytes on both sides.
    SAME = "same"
    #: They cannot be decoded, and nothing contradicts.
    UNDECODED = "not decoded"
    MISSING = "missing"
    EXTRA = "extra"
    ALTERED = "altered"
    REORDERED = "reordered"
    #: One side lacks it and has a gap there: the cleaner may have removed it.
    COMPACTED = "compacted"
    NOT_MIRRORED = "not mirrored yet"
    DIVERGED = "diverged"


class SameRun(NamedTuple):
    """
    Records of one batch, all of which the other side has in the same order.

    Attributes:
        base_offset: The first record's.
        next_offset: The first offset after the last.
        records: How many there are.
        is_batch_done: They end their batch, and all of it is on the other side.

    """

    base_offset: int
    next_offset: int
    records: int
    is_batch_done: bool


class SameRecords(NamedTuple):
    """Records that are the same on both sides, in whatever batches."""

    source: SameRun
    destination: SameRun


class SameBatches(NamedTuple):
    """Batches that have the same bytes on both sides."""

    source: DigestRun
    destination: DigestRun


#: A whole batch, or one record.
Part: TypeAlias = Digest | Entry


class Gap(NamedTuple):
    """
    Offsets of one side without a record, in a place in which the other side has records.

    Attributes:
        end: The offset of the next record that both sides have.
        size: The number of offsets; 0 if there is no gap.

    """

    end: int
    size: int


class Finding(NamedTuple):
    """
    Batches or records that follow each other, and how they compare.

    Attributes:
        kind: How they compare.
        source: The source's batches or records; empty for ``NOT_MIRRORED`` and ``DIVERGED``.
        destination: The destination's batches or records; empty for the same kinds.
        source_place: The source offset, also if the source has nothing there.
        destination_place: The destination offset, also if the destination has nothing there.
        copy_of: The source offset of the record that an ``EXTRA`` one doubles.
        gaps: The destination's gap that may explain the source's records, and the source's gap that may
            explain the destination's.

    """

    kind: Kind
    source: tuple[Part, ...]
    destination: tuple[Part, ...]
    source_place: int
    destination_place: int
    copy_of: int | None = None
    gaps: tuple[Gap | None, Gap | None] = (None, None)

    def without_gaps(self) -> Finding:
        """Return it as the difference that it is if no gap explains it."""
        on_one = Kind.MISSING if self.source else Kind.EXTRA
        kind = Kind.ALTERED if self.source and self.destination else on_one
        return self._replace(kind=kind, gaps=(None, None))


#: All that a comparison yields.
AnyFinding: TypeAlias = Finding | SameBatches | SameRecords
