"""The scenarios: each has an event, and a promise that the copy must still keep.

The other events of tasks are those of `tests.campaigns.plan`, several in a trial.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress

from shoal.mirroring.model.incidents import IncidentKind
from shoal.records import RecordBatch
from shoal_broker.api_error import ApiError
from tests.two_brokers import (
    Acting,
    batches_of,
)

from .consumers import ConsumersMove, ConsumersOfDamagedCopies
from .promises import Findings, exact_or_stopped
from .scenario import Scenario
from .stage import Partition, Stage, recreate_source

__all__ = ["SCENARIOS"]

#: Time for a task to wait for offsets that a recreated topic does not have.
_NEW_TOPIC_PATIENCE_S = 5.0


class SourceTopicRecreated(Scenario):
    name = "source topic deleted and created anew"
    stops = (r"created again", r"created anew", r"recreated", r"was deleted")

    def promise(self, found: Findings) -> list[str]:
        return exact_or_stopped(found)

    def begin(self, stage: Stage) -> None:
        if stage.dice.random() < 0.6:
            stage.set(continue_on=frozenset({IncidentKind.SOURCE_RESET}))

    def round(self, stage: Stage) -> None:
        if stage.dice.random() < 0.5:
            stage.task()
        elif stage.dice.random() < 0.5:
            recreate_source(stage)
            stage.task()
        else:
            # In the middle of a task. If its first position is of the new topic, it waits, and reports that,
            # for the offsets that the former one had.
            acting = Acting(stage.dice.randint(0, 15), lambda: recreate_source(stage))
            stage.task(acting, patience_s=_NEW_TOPIC_PATIENCE_S)


class SourceFilledAgain(Scenario):
    """The positions disappear with the topic, and the copy's last batch is in the new one: once."""

    name = "source topic deleted and filled again with its records behind others"
    stops = (r"deleted and filled again", r"deleted and created again")

    def promise(self, found: Findings) -> list[str]:
        return exact_or_stopped(found)

    def begin(self, stage: Stage) -> None:
        if stage.dice.random() < 0.5:
            stage.set(continue_on=frozenset({IncidentKind.SOURCE_RESET}))

    def round(self, stage: Stage) -> None:
        stage.task()
        if stage.dice.random() < 0.3:
            former = [batches_of(each.history.log) for each in stage.partitions]
            recreate_source(stage)
            for partition, found in zip(stage.partitions, former, strict=True):
                partition.history.plain(stage.dice.randint(1, 4))
                _store_again(partition, found)


def _store_again(partition: Partition, found: Sequence[RecordBatch]) -> None:
    """Fill a partition with the batches of another log, except those of transactions."""
    for batch in found:
        header = batch.header
        if header.records_count and not header.is_transactional and not header.is_control:
            again = bytearray(batch.view)
            again[:8] = partition.history.next_offset.to_bytes(8)
            partition.history.store(again, shown=True)


class PositionsDeleted(Scenario):
    """Positions are deleted; copy and source are intact and show the position, and no partition stops."""

    name = "positions deleted, and nothing else changed"

    def destination_config(self, dice: random.Random) -> dict[str, str]:
        if dice.random() < 0.7:
            return {}
        config = {"compression.type": dice.choice(["gzip", "zstd", "lz4", "uncompressed", "producer"])}
        if dice.random() < 0.5:
            config["message.timestamp.type"] = "LogAppendTime"
        return config

    def round(self, stage: Stage) -> None:
        stage.task()
        if stage.dice.random() < 0.4:
            with suppress(ApiError):  # there is no such group yet
                stage.brokers.forget_pairs()


SCENARIOS: dict[str, Callable[[], Scenario]] = {
    each.name: each
    for each in (
        SourceTopicRecreated,
        SourceFilledAgain,
        PositionsDeleted,
        ConsumersMove,
        ConsumersOfDamagedCopies,
    )
}
