"""The findings of a comparison: differences, ranges that were not compared, and open transactions."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "ABORTED",
    "NOWHERE",
    "Difference",
    "DifferenceKind",
    "Elsewhere",
    "NotCompared",
    "OffsetRange",
    "OpenTransaction",
    "Place",
    "Side",
]

#: The detail of an extra range that a copy by a reader with ``read_uncommitted`` has.
ABORTED = "aborted transactions of the source"


class Side(enum.Enum):
    """A cluster's part in the comparison."""

    SOURCE = "source"
    DESTINATION = "destination"


class OffsetRange(NamedTuple):
    """Offsets from ``start`` to before ``end``; an empty one is a place between two records."""

    start: int
    end: int

    def since(self, offset: int) -> OffsetRange:
        """Return the part of it from an offset on."""
        return self._replace(start=max(self.start, offset))

    def __str__(self) -> str:
        """Return the first and the last offset, as a person counts them."""
        return f"{self.start}" if self.end - self.start <= 1 else f"{self.start} to {self.end - 1}"


class Place(NamedTuple):
    """Offsets of both sides that belong together, or numbers of both."""

    source: int
    destination: int

    def precedes(self, other: Place) -> bool:
        """Whether neither of its offsets is behind that of another place."""
        return self.source <= other.source and self.destination <= other.destination


NOWHERE = Place(0, 0)


class DifferenceKind(enum.Enum):
    """How both sides differ in a place."""

    MISSING = "missing"
    EXTRA = "extra"
    ALTERED = "altered"
    REORDERED = "reordered"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """
    The other half of a fault: records that were sent to the wrong topic or partition.

    Attributes:
        side: The cluster of the other partition.
        partition: Its name: for extra records the source partition that has them, for missing ones the
            destination partition.
        offsets: The first and the last of the records there.
        records: The number of records that both have.

    """

    side: Side
    partition: str
    offsets: OffsetRange
    records: int

    def __str__(self) -> str:
        """Return a phrase for the difference of the first half."""
        size = f"{self.records:,} {'record' if self.records == 1 else 'records'}"
        if self.side is Side.SOURCE:
            return f"misrouted: {size} of {self.partition}, source offsets {self.offsets}"
        verb = "is" if self.records == 1 else "are"
        return f"misrouted: {size} {verb} at {self.partition}, destination offsets {self.offsets}"


@dataclass(frozen=True, slots=True)
class Difference:
    """
    One range in which both sides differ.

    Attributes:
        kind: How.
        source: The source's offsets; empty for extra records, at the place
            at which the source would have them.
        destination: The destination's offsets; empty for missing records.
            A reordered range is at these instead of in its place.
        records: How many, on the side that has more; if nothing can be decoded,
            the number of offsets.
        damaged: The sides on which a batch does not match its own CRC: the
            bytes in that cluster's log are not those that were written.
        copy_of: The source's offsets that an extra range doubles.
        detail: More, as a phrase: the kind of damage.
        misrouted: The other partition, if records were sent to the wrong one.

    """

    kind: DifferenceKind
    source: OffsetRange
    destination: OffsetRange
    records: int
    damaged: tuple[Side, ...] = ()
    copy_of: OffsetRange | None = None
    detail: str | None = None
    misrouted: Elsewhere | None = None

    def __str__(self) -> str:
        """Return a phrase: kind, offsets, size, what more is known."""
        phrase = f"{self._where()} ({_size(self)})"
        if self.copy_of:
            phrase += f": doubles source offsets {self.copy_of}"
        if self.misrouted:
            phrase += f": {self.misrouted}"
        return f"{phrase}: {self.detail}" if self.detail else phrase

    def _where(self) -> str:
        if self.kind is DifferenceKind.REORDERED:
            return f"reordered: source offsets {self.source} are at destination offsets {self.destination}"
        sides = [
            f"{side.value} offsets {offsets}"
            for side, offsets in ((Side.SOURCE, self.source), (Side.DESTINATION, self.destination))
            if offsets.start < offsets.end
        ]
        return f"{self.kind.value}: {', '.join(sides)}"


@dataclass(frozen=True, slots=True)
class NotCompared:
    """
    A range that could not be compared.

    Attributes:
        records: The number of records, on the side that has more.
        reason: Why, as a phrase.

    """

    source: OffsetRange
    destination: OffsetRange
    records: int
    reason: str

    def __str__(self) -> str:
        return (
            f"not compared: source offsets {self.source}, destination offsets {self.destination} "
            f"({_size(self)}): {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """
    A transaction that was open when the comparison began: no record behind its first one is compared.

    Attributes:
        side: The cluster that has it.
        offset: Its first offset there, at which the comparison ends.

    """

    side: Side
    offset: int

    def __str__(self) -> str:
        return f"not compared from {self.side.value} offset {self.offset} on: an open transaction"


def _size(each: Difference | NotCompared) -> str:
    return f"{each.records:,} {'record' if each.records == 1 else 'records'}"
