"""The one judge of a copy: each record once, in order, nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.two_brokers import Content

from .source import Written

__all__ = ["Judge"]


@dataclass(frozen=True, slots=True)
class Judge:
    """
    Compares a destination partition with what producers wrote to its source.

    Attributes:
        reads_committed: Whether the mirror leaves out records of aborted and open transactions.
        may_repeat: Whether a record may come again (at least once), as long as first copies are in order.
        seen: The part of a record that the destination keeps.
        are_same: Whether records may equal each other, so that only their number and order tell them apart.

    """

    reads_committed: bool = True
    may_repeat: bool = False
    seen: Callable[[Content], Content] = lambda record: record
    are_same: bool = False

    def problems(
        self,
        copy: Sequence[Content],
        written: Sequence[Written],
        *,
        due: Callable[[Written], bool],
        lost: int | None = 0,
    ) -> list[str]:
        """
        Return what is wrong with a copy.

        Args:
            copy: Its records, without those of foreign writers.
            written: All records of the source.
            due: Whether the copy must have a record that lies behind its last one, too.
            lost: How many records the mirror reported as lost; None if it could not count them.

        """
        wanted = [each for each in written if each.is_shown or not self.reads_committed]
        if self.are_same:
            return self._problems_by_place(copy, wanted, due)
        numbers = {self.seen(each.content): number for number, each in enumerate(wanted)}
        last = -1
        copied: set[int] = set()
        for offset, record in enumerate(copy):
            number = numbers.get(self.seen(record))
            if number is None:
                return [f"record {offset} of the copy, {record}, is none that a reader of the source sees"]
            if number in copied and not self.may_repeat:
                return [f"record {offset} of the copy, {record}, is there twice"]
            if number not in copied and number < last:
                return [f"record {offset} of the copy, {record}, is out of order"]
            copied.add(number)
            last = max(last, number)
        missing = [
            each
            for number, each in enumerate(wanted)
            if number not in copied and not each.may_lack and (number < last or due(each))
        ]
        if lost is not None and len(missing) > lost:
            first = missing[0]
            return [
                f"{len(missing)} records are missing, and {lost} were reported as lost. The first is at "
                f"source offset {first.offset}: {first.content}. {len(copy)} of {len(wanted)} are in the copy"
            ]
        return []

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
