"""The findings of a comparison."""

from __future__ import annotations

import enum
from typing import NamedTuple, TypeAlias

from .digest import Digest, DigestRun, Entry

__all__ = ["AnyFinding", "Finding", "Kind", "Part", "SameBatches", "SameRecords", "SameRun"]


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
    #: Only one side has it, and the other has a gap there.
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


class Finding(NamedTuple):
    """
    Batches or records that follow each other, and how they compare.

    Attributes:
        kind: How.
        source: The source's; empty for ``NOT_MIRRORED`` and ``DIVERGED``.
        destination: The destination's, likewise.
        source_place: The source offset, also if the source has nothing there.
        destination_place: The destination offset, likewise.
        copy_of: The source offset of the record that an ``EXTRA`` one doubles.

    """

    kind: Kind
    source: tuple[Part, ...]
    destination: tuple[Part, ...]
    source_place: int
    destination_place: int
    copy_of: int | None = None


#: All that a comparison yields.
AnyFinding: TypeAlias = Finding | SameBatches | SameRecords
