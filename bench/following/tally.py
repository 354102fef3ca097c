"""Count what consumers read twice or miss that go on at the copy. The module sends no requests.

A copy has the records of its source in the same order. So a place in the log is the number of records before
it, and two places are the same if these numbers are equal.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from rig import Record

__all__ = ["CopyDiffers", "Pair", "Place", "Position", "Tally", "pair_of", "tally"]

Place: TypeAlias = tuple[str, int]
"""A partition of the source: its topic and its number."""


class CopyDiffers(Exception):
    """A copy has other records than its source; the text names the first difference."""


class Position(NamedTuple):
    """The committed offset of a group at the source."""

    group: str
    place: Place
    offset: int


@dataclass(frozen=True)
class Pair:
    """The offsets of all records of a partition and of its copy, both in order."""

    source: Sequence[int]
    copy: Sequence[int]

    def read_again(self, offset: int, translated: int) -> int:
        """Return the number of records that a consumer reads twice; if negative, those that it misses.

        Args:
            offset: The first source offset that the consumer has not read.
            translated: The offset of the copy from which it reads.
        """
        return bisect_left(self.source, offset) - bisect_left(self.copy, translated)


def pair_of(source: Sequence[Record], copy: Sequence[Record], *, with_times: bool = True) -> Pair:
    """Compare a partition with its copy, record by record.

    Args:
        with_times: Whether the timestamps must be equal, too, if the source has create times.

    Raises:
        CopyDiffers: The copy has other records, or another number of them.
    """
    for number, (ours, theirs) in enumerate(zip(source, copy, strict=False)):
        has_time = with_times and ours.timestamp_type == "CreateTime"
        if (ours.key, ours.value, ours.headers) != (theirs.key, theirs.value, theirs.headers) or (
            has_time and ours.timestamp != theirs.timestamp
        ):
            raise CopyDiffers(f"record number {number}, at source offset {ours.offset}, differs")
    if len(source) != len(copy):
        raise CopyDiffers(f"the source has {len(source)} records, the copy {len(copy)}")
    return Pair([each.offset for each in source], [each.offset for each in copy])


@dataclass(frozen=True)
class Tally:
    """The sums over some positions.

    Attributes:
        positions: Number of positions.
        groups: Number of groups.
        exact: The positions from which consumers read nothing twice and miss nothing.
        read_twice: The records that consumers read twice, of all positions together.
        most_twice: The largest number of them at one position.
        missed: The records that consumers miss.
        without: The positions without an offset at the destination: there `auto.offset.reset` decides.
        groups_without: The groups without any offset at the destination.
    """

    positions: int
    groups: int
    exact: int
    read_twice: int
    most_twice: int
    missed: int
    without: int
    groups_without: int

    @property
    def is_exact(self) -> bool:
        """Whether each consumer continues at its next record."""
        return self.exact == self.positions


def tally(
    positions: Collection[Position],
    there: Mapping[tuple[str, Place], int],
    pairs: Mapping[Place, Pair],
) -> Tally:
    """Compare each position with the offset that its group has at the destination.

    Args:
        there: The offsets at the destination, by group and by the place at the source.
        pairs: The records of both sides, by the place at the source.
    """
    again = [
        pairs[each.place].read_again(each.offset, there[each.group, each.place])
        for each in positions
        if (each.group, each.place) in there
    ]
    groups = {each.group for each in positions}
    with_some = {each.group for each in positions if (each.group, each.place) in there}
    return Tally(
        positions=len(positions),
        groups=len(groups),
        exact=again.count(0),
        read_twice=sum(each for each in again if each > 0),
        most_twice=max([0, *again]),
        missed=-sum(each for each in again if each < 0),
        without=len(positions) - len(again),
        groups_without=len(groups - with_some),
    )
