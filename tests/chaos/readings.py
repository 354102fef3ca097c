"""The readings of consumers that change the cluster: do they have every record, and none twice?"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace

__all__ = ["Reading", "Stay", "judge"]

#: Number of wrong records to describe.
_DESCRIBED = 3


@dataclass(frozen=True, slots=True)
class Stay:
    """The records of one partition that a group read at one cluster, up to its commit.

    Attributes:
        where: The cluster's name, for descriptions.
        is_exact: Whether the group began at an exact translation, or at an offset of its own.
        records: The records in the order in which it read them.
    """

    where: str
    is_exact: bool
    records: Sequence[Hashable]


@dataclass(frozen=True, slots=True)
class Reading:
    """The verdict on what groups have read.

    Attributes:
        records: Number of records that were read.
        missing: Records that were skipped.
        twice: Records that were read again after an exact translation.
        again: Records that were read again after another one, as that allows.
        foreign: Records that the source never had.
        details: Descriptions of the first wrong records.
    """

    records: int = 0
    missing: int = 0
    twice: int = 0
    again: int = 0
    foreign: int = 0
    details: tuple[str, ...] = ()

    @property
    def is_kept(self) -> bool:
        """Whether no record is wrong; those that may be read again are not."""
        return not (self.missing or self.twice or self.foreign)

    def of(self, name: str) -> Reading:
        """Return the same with a name before each description."""
        return replace(self, details=tuple(f"{name}: {each}" for each in self.details))

    def __add__(self, other: Reading) -> Reading:
        return Reading(
            self.records + other.records,
            self.missing + other.missing,
            self.twice + other.twice,
            self.again + other.again,
            self.foreign + other.foreign,
            self.details + other.details,
        )

    def __str__(self) -> str:
        return (
            f"{self.records} records read by consumers that moved, {self.twice} twice, "
            f"{self.missing} missing, {self.again} again"
        )


def judge(
    expected: Sequence[Hashable],
    stays: Sequence[Stay],
    first: int = 0,
    *,
    to_end: bool = True,
    lost: Collection[Hashable] = (),
) -> Reading:
    """Follow a group through a partition, from stay to stay.

    Args:
        expected: The source's records in order; no two are equal.
        stays: All stays of the group.
        first: The place of the first record that it has to read.
        to_end: Whether the last stay has to read to the end.
        lost: Records that may be missing, as they were deleted.
    """
    places = {record: place for place, record in enumerate(expected)}
    verdict, due = Reading(), first
    for number, stay in enumerate(stays):
        skipped: list[str] = []
        repeated: list[str] = []
        foreign: list[str] = []
        missing = 0
        for record in stay.records:
            place = places.get(record)
            if place is None:
                foreign.append(f"foreign: {record!r}")
            elif place < due:
                repeated.append(f"read again: {record!r}")
            else:
                between = [each for each in expected[due:place] if each not in lost]
                if between:
                    missing += len(between)
                    skipped.append(f"skipped {len(between)} before {record!r}")
                due = place + 1
        wrong = [*skipped, *(repeated if stay.is_exact else []), *foreign]
        verdict += Reading(
            records=len(stay.records),
            missing=missing,
            twice=len(repeated) if stay.is_exact else 0,
            again=0 if stay.is_exact else len(repeated),
            foreign=len(foreign),
            details=tuple(f"stay {number} at the {stay.where}: {each}" for each in wrong[:_DESCRIBED]),
        )
    left = [each for each in expected[due:] if each not in lost]
    if to_end and left:
        verdict += Reading(missing=len(left), details=(f"{len(left)} unread, from {left[0]!r} on",))
    return verdict
