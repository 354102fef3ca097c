"""What a comparison finds."""

from __future__ import annotations

import enum
from typing import NamedTuple

from .digest import Digest

__all__ = ["Finding", "Kind"]


class Kind(enum.Enum):
    """What is the matter with some batches; the value is its name in reports."""

    SAME = "same"
    #: One side's batch, whose records were found on the other side: the cuts
    #: may be others there.
    DECODED = "decoded"
    #: It cannot be decoded, and nothing in the headers contradicts.
    UNDECODED = "not decoded"
    MISSING = "missing"
    EXTRA = "extra"
    ALTERED = "altered"
    REORDERED = "reordered"
    #: Only one side has it, and the other has a gap there.
    COMPACTED = "compacted"
    NOT_MIRRORED = "not mirrored yet"
    DIVERGED = "diverged"


class Finding(NamedTuple):
    """
    Some batches that follow each other, and what is the matter with them.

    Attributes:
        kind: What.
        source: The source's batches; of ``NOT_MIRRORED`` and ``DIVERGED``,
            only the first.
        destination: The destination's, likewise.
        source_place: The source offset, also where no batch is there.
        destination_place: The destination offset, likewise.
        copy_of: Of an ``EXTRA`` batch, the source batch that it doubles.

    """

    kind: Kind
    source: tuple[Digest, ...]
    destination: tuple[Digest, ...]
    source_place: int
    destination_place: int
    copy_of: Digest | None = None
