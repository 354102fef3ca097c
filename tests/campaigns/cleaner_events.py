"""The log cleaner at either side: of each key, the last record stays."""

from __future__ import annotations

import random
from collections.abc import Callable

from shoal.records import RecordBatch, read_key_value_headers, read_records
from shoal_broker.broker import Broker
from shoal_broker.storage.log import Log
from tests.world.clusters import TOPIC
from tests.world.contents import batches_of, compacted
from tests.world.judge import judge_of
from tests.world.source import SourcePartition
from tests.world.tasks import TaskWorld

from .events import Family, happens
from .incident_events import SILENT_STOPS

__all__: list[str] = []


@happens(Family.CLEANER, weight=3)
def keys_are_updated(world: TaskWorld, dice: random.Random) -> None:
    """Producers write few keys again and again."""
    for each in world.partitions:
        each.update_keys()


@happens(Family.CLEANER, weight=2, stops=SILENT_STOPS)
def source_is_compacted(world: TaskWorld, dice: random.Random) -> None:
    """The cleaner runs at the source, up to some offset."""
    partition = world.a_partition()
    after, is_left = _cleaned(world.source.nodes[0], partition.number, _shown(partition), dice)
    partition.was_cleaned(after, is_left)


@happens(Family.CLEANER, stops=SILENT_STOPS)
def copy_is_compacted(world: TaskWorld, dice: random.Random) -> None:
    """The cleaner runs at the destination, up to some offset."""
    partition = world.a_partition()
    before = world.copied(partition.number)
    _cleaned(world.destination.nodes[0], partition.number, _shown(partition), dice)
    gone = set(map(judge_of(world).seen, before)) - set(
        map(judge_of(world).seen, world.copied(partition.number))
    )
    for each in partition.records:
        if judge_of(world).seen(each.content) in gone:
            each.may_lack = True


def _shown(partition: SourcePartition) -> set[bytes | None]:
    return {each.content.value for each in partition.records if each.is_shown}


def _cleaned(
    broker: Broker, number: int, shown: set[bytes | None], dice: random.Random
) -> tuple[Log, Callable[[int], bool]]:
    """
    Run the cleaner over a log up to some offset, and put the cleaned log in its place.

    As Kafka's cleaner does, it drops aborted records, which replace no others. Returns the new log, and
    whether an offset is left in it.
    """
    before = broker.log(TOPIC, number)
    found = batches_of(before)
    # The active segment is never cleaned: the last batch stays.
    last_stays = min([before.last_stable_offset, *(each.header.base_offset for each in found[-1:])])
    up_to = dice.randint(min(before.log_start_offset, last_stays), last_stays)
    last: dict[bytes | None, int] = {}
    for batch in found:
        last |= {key: offset for offset, key, value in _records(batch) if value in shown}
    after = Log(before.name, before.config)
    left: set[int] = set()
    for batch in found:
        is_old = batch.view[16] < 2  # which a cleaner rewrites, too, and this one does not
        if batch.header.base_offset >= up_to or batch.header.is_control or is_old:
            after.store(batch.view)
            left.update(offset for offset, _, _ in _records(batch))
            continue
        kept = {
            offset
            for offset, key, value in _records(batch)
            if value in shown and (key is None or last[key] == offset)
        }
        if kept:
            after.store(memoryview(compacted(batch, kept.__contains__)))
            left |= kept
    after.inherit(before)
    broker.topics.topic(TOPIC).logs[number] = after
    return after, left.__contains__


def _records(batch: RecordBatch) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of each record; none of a control batch."""
    if batch.header.is_control:
        return []
    # Not by aiokafka, which refuses LZ4 in the oldest format.
    return [(record.offset, *read_key_value_headers(record)[:2]) for record in read_records(batch, 1_000_000)]
