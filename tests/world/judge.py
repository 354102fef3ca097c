"""The one judge, for embedded copies: it knows the mirror's rules, and the source."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rig import judge
from shoal.mirroring.model.incidents import Delivery

from .batches import Content
from .history import Written

if TYPE_CHECKING:
    from .tasks import TaskWorld

__all__ = ["Finding", "Judge", "Loss", "judge_of"]


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

    problems: Sequence[str]
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

    """

    reads_committed: bool = True
    may_repeat: bool = False
    seen: Callable[[Content], Content] = lambda record: record
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
        numbers = [number for number, each in enumerate(written) if each.is_shown or not self.reads_committed]
        wanted = [written[number] for number in numbers]
        verdict = judge.judge_copy(
            [(each.offset, self.seen(each.content)) for each in wanted],
            [(place, self.seen(record)) for place, record in enumerate(copy)],
            may_repeat=self.may_repeat,
            least=max((place + 1 for place, each in enumerate(wanted) if due(each)), default=0),
            may_lack=[place for place, each in enumerate(wanted) if self._may_lack(each)],
            losses=[judge.Loss(each.records, bisect_left(numbers, each.written)) for each in losses],
        )
        return Finding(list(verdict.details), [wanted[place] for place in verdict.lacking])

    def _may_lack(self, written: Written) -> bool:
        return written.may_lack or (self.may_lack_hidden and not written.is_shown)

    def places(
        self, copy: Sequence[tuple[int, Content]], written: Sequence[Written]
    ) -> list[tuple[int, int]]:
        """Return source offset and copy's offset of each record of a copy that is among the written ones."""
        offsets = {self.seen(each.content): each.offset for each in written}
        found = [(offsets.get(self.seen(content)), offset) for offset, content in copy]
        return [(source, offset) for source, offset in found if source is not None]


def judge_of(world: TaskWorld) -> Judge:
    """The judge of these copies."""
    sets_times = dict(world.setup.destination_config).get("message.timestamp.type") == "LogAppendTime"
    return Judge(
        reads_committed=world.setup.reads_committed and not world.level_has_changed,
        may_repeat=world.setup.delivery is Delivery.AT_LEAST_ONCE,
        seen=_without_time if sets_times else _whole,
        may_lack_hidden=world.level_has_changed,
    )


def _whole(record: Content) -> Content:
    return record


def _without_time(record: Content) -> Content:
    return record._replace(timestamp=0)
