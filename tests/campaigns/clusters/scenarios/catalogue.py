"""Scenarios whose records come again, or whose positions are gone: the campaign of tasks lacks these."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress

from shoal.mirroring.model.incidents import IncidentKind
from shoal.records import RecordBatch
from shoal_broker.api_error import ApiError
from tests.two_brokers import batches_of

from .consumers import ConsumersMove, ConsumersOfDamagedCopies
from .promises import Findings, exact_or_stopped
from .scenario import Scenario
from .stage import Partition, Stage, recreate_source

__all__ = ["SCENARIOS"]


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
        return _some_odd_config(dice) if dice.random() < 0.3 else {}

    def round(self, stage: Stage) -> None:
        stage.task()
        if stage.dice.random() < 0.4:
            with suppress(ApiError):  # there is no such group yet
                stage.brokers.forget_pairs()


def _some_odd_config(dice: random.Random) -> dict[str, str]:
    """Return settings of a destination that compresses batches again, or sets their times."""
    config = {"compression.type": dice.choice(["gzip", "zstd", "lz4", "uncompressed", "producer"])}
    if dice.random() < 0.5:
        config["message.timestamp.type"] = "LogAppendTime"
    return config


SCENARIOS: dict[str, Callable[[], Scenario]] = {
    each.name: each for each in (SourceFilledAgain, PositionsDeleted, ConsumersMove, ConsumersOfDamagedCopies)
}
