"""The one judge of a copy: each record once, in order, nowhere else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.world.batches import Content

from .history import Written

__all__ = ["Finding", "Judge", "Loss"]


class Loss(NamedTuple):
    """
    The records that the mirror reported as lost, once.

    Attributes:
        records: How many records; None if it could not count them.
        written: How many records producers had written by then: none of the later ones is lost.

    """

    records: int | None
    written: int


class Finding(NamedTuple):
    """
    The problems of a copy, and the records that it lacks.

    Attributes:
        problems: Sentences about what is wrong.
        missing: The records that it should have and lacks, whether they were reported as lost or not.

    """

    problems: list[str]
    missing: Sequence[Written] = ()


@dataclass(frozen=True, slots=True)
class Judge:
    """
    Compares a destination partition with what producers wrote to its source.

    Attributes:
        reads_committed: Whether the mirror leaves out records of aborted and open transactions.
        may_repeat: Whether a record may come again (at least once), as long as first copies are in order.
        seen: The part of a record that the destination keeps.
        may_lack_hidden: Whether the copy need not have what readers of committed records do not see.
        are_same: Whether records may equal each other, so that only their number and order tell them apart.

    """

    reads_committed: bool = True
    may_repeat: bool = False
    seen: Callable[[Content], Content] = lambda record: record
    are_same: bool = False
    may_lack_hidden: bool = False

    def compare(
        self,
        copy: Sequence[Content],
        written: Sequence[Written],
        *,
        due: Callable[[Written], bool],
        losses: Sequence[Loss] = (),
    ) -> Finding:
        """
        Compare a copy.

        Args:
            copy: Its records, without those of foreign writers.
            written: All records of the source.
            due: Whether the copy must have a record that lies behind its last one, too.
            losses: The losses that the mirror reported.

        """
        wanted = {
            number: each for number, each in enumerate(written) if each.is_shown or not self.reads_committed
        }
        if self.are_same:
            return Finding(self._problems_by_place(copy, list(wanted.values()), due))
        numbers = {self.seen(each.content): number for number, each in wanted.items()}
        last = -1
        copied: set[int] = set()
        for offset, record in enumerate(copy):
            number = numbers.get(self.seen(record))
            if number is None:
                return Finding(
                    [f"record {offset} of the copy, {record}, is none that a reader of the source sees"]
                )
            if number in copied and not self.may_repeat:
                return Finding([f"record {offset} of the copy, {record}, is there twice"])
            if number not in copied and number < last:
                return Finding([f"record {offset} of the copy, {record}, is out of order"])
            copied.add(number)
            last = max(last, number)
        missing = [
            number
            for number, each in wanted.items()
            if number not in copied
            and not (each.may_lack or (self.may_lack_hidden and not each.is_shown))
            and (number < last or due(each))
        ]
        problems = []
        unreported = list(_unreported(missing, losses))
        if unreported:
            first = written[unreported[-1]]
            problems = [
                f"{len(missing)} records are missing, and {len(unreported)} of them were not reported as "
                f"lost. The first of these is at source offset {first.offset}: {first.content}. {len(copy)} "
                f"of {len(wanted)} are in the copy"
            ]
        return Finding(problems, [written[number] for number in missing])

    def _problems_by_place(
        self, copy: Sequence[Content], wanted: Sequence[Written], due: Callable[[Written], bool]
    ) -> list[str]:
        if list(map(self.seen, copy)) != [self.seen(each.content) for each in wanted[: len(copy)]]:
            return [f"the copy's {len(copy)} records are not the first of the source's {len(wanted)}"]
        missing = [each for each in wanted[len(copy) :] if due(each)]
        return [f"{len(missing)} records are missing at the copy's end"] if missing else []

    def places(
        self, copy: Sequence[tuple[int, Content]], written: Sequence[Written]
    ) -> list[tuple[int, int]]:
        """Return source offset and copy's offset of each record of a copy that is among the written ones."""
        offsets = {self.seen(each.content): each.offset for each in written}
        found = [(offsets.get(self.seen(content)), offset) for offset, content in copy]
        return [(source, offset) for source, offset in found if source is not None]


def _unreported(missing: Sequence[int], losses: Sequence[Loss]) -> Iterator[int]:
    """Yield the numbers of missing records, the last one first, that cannot be among the lost ones."""
    earlier = sorted(losses, key=lambda loss: loss.written)
    room = 0.0
    for number in reversed(missing):
        while earlier and earlier[-1].written > number:
            records = earlier.pop().records
            room += math.inf if records is None else records
        if room < 1:
            yield number
        else:
            room -= 1
