"""The scenarios: each has an event, and a promise that the copy must still keep."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, cast
from unittest.mock import patch

from shoal.error_codes import ErrorCode
from shoal.mirroring.control.allowance import Allowance
from shoal.mirroring.model.incidents import Delivery, IncidentKind
from shoal.mirroring.model.position import MirrorPosition
from shoal.mirroring.model.steering import UNSTEERED, TaskSteering
from shoal.mirroring.task import copy_loop
from shoal.protocol.apis import ApiKey
from shoal.records import RecordBatch, read_key_value_headers, read_records
from shoal_broker.api_error import ApiError
from shoal_broker.broker import Broker
from shoal_broker.storage.log import Log
from tests import batches
from tests.two_brokers import (
    ABORT,
    COMMIT,
    NOW_MS,
    Acting,
    Content,
    Mortal,
    answers,
    batches_of,
    begin_at,
    compacted,
    content_of,
    lagging,
    lose_tail,
    may_compact,
)

from .consumers import ConsumersMove, ConsumersOfDamagedCopies
from .promises import Findings, at_least_once, exact_or_stopped, last_values
from .scenario import FOREIGN, Scenario
from .stage import DAY_MS, Partition, Stage, recreate_source

__all__ = ["SCENARIOS"]

#: Time for a task to wait for offsets that a recreated topic does not have.
_NEW_TOPIC_PATIENCE_S = 5.0


# The source


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


class SourceCompacted(Scenario):
    name = "source compacted between a kill and the next start"
    stops = (
        r"nothing shows whether to resume",
        r"compact",
        r"the source does not have them now",
        r"times in the source",
        r"is not in the source",
        r"cannot tell",
    )

    def promise(self, found: Findings) -> list[str]:
        return last_values(found)

    def destination_config(self, dice: random.Random) -> dict[str, str]:
        return {"message.timestamp.type": "LogAppendTime"} if dice.random() < 0.3 else {}

    def begin(self, stage: Stage) -> None:
        self._repeats_times = stage.dice.random() < 0.5

    def round(self, stage: Stage) -> None:
        for partition in stage.partitions:
            self._update(partition, stage.dice)
        stage.task()
        for number, partition in enumerate(stage.partitions):
            if stage.dice.random() < 0.6:
                self.compact(stage, number, partition)

    def compact(self, stage: Stage, number: int, partition: Partition) -> None:
        partition.history.log = _compact(stage.source, stage, number, partition)

    def _update(self, partition: Partition, dice: random.Random) -> None:
        """Write updates of few keys with few values; some repeat an earlier one with its time."""
        history = partition.history
        for _ in range(dice.randint(2, 10)):
            key, value = b"key %d" % dice.randrange(6), b"value %d" % dice.randrange(2)
            at = NOW_MS + (dice.randrange(3) if self._repeats_times else history.next_offset)
            records = [batches.Record(value=value, key=key)]
            history.store(
                batches.raw_batch(
                    batches.payload(records),
                    base_offset=history.next_offset,
                    base_timestamp=at,
                    max_timestamp=at,
                ),
                shown=True,
            )

    def seen(self, record: Content) -> Content:
        return record._replace(timestamp=0)


class DestinationCompacted(SourceCompacted):
    """The copy is compacted with its source's settings, while later positions are not committed."""

    name = "copy compacted between a kill and the next start"

    def copy(self, stage: Stage, number: int) -> list[Content]:
        return content_of(stage.destination.log(stage.topic, number), is_compacted=True)

    def compact(self, stage: Stage, number: int, partition: Partition) -> None:
        _compact(stage.destination, stage, number, partition)


def _compact(broker: Broker, stage: Stage, number: int, partition: Partition) -> Log:
    """Run a broker's log cleaner: up to some offset only the last update of each key stays.

    As the cleaner does, drop aborted records, which replace no others. Returns the new log.
    """
    shown = {record.value for record in partition.history.committed}
    may_compact(broker, stage.topic)
    before = broker.log(stage.topic, number)
    cleaned_up_to = stage.dice.randint(0, before.log_end_offset)
    last: dict[bytes | None, int] = {}
    for batch in batches_of(before):
        last |= {key: offset for offset, key, value in _records(batch) if value in shown}
    after = Log(before.name, before.config)
    for batch in batches_of(before):
        if batch.header.base_offset >= cleaned_up_to or batch.header.is_control:
            after.store(batch.view)
            continue
        kept = {offset for offset, key, value in _records(batch) if value in shown and last[key] == offset}
        if kept:
            after.store(memoryview(compacted(batch, kept.__contains__)))
    after._log_end_offset = before.log_end_offset
    after._epochs.starts = list(before._epochs.starts)
    after._producers = before._producers
    broker.topics.topic(stage.topic).logs[number] = after
    return after


def _records(batch: RecordBatch) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of each record."""
    return [(record.offset, *read_key_value_headers(record)[:2]) for record in read_records(batch, 1_000_000)]


#: Of a broker that is newer than shoal; the embedded one sends any number.
_NO_CODE = cast("ErrorCode", 31_999)


class SourceErrors(Scenario):
    name = "the source answers UNKNOWN_SERVER_ERROR, or codes that Kafka does not have"

    _apis: ClassVar = (
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_COMMIT,
    )

    def round(self, stage: Stage) -> None:
        api = stage.dice.choice(self._apis)
        code = stage.dice.choice([ErrorCode.UNKNOWN_SERVER_ERROR, _NO_CODE])
        stage.source.faults.add(api, error=code, times=stage.dice.randint(1, 3))
        if stage.dice.random() < 0.4:
            stage.destination.faults.add(ApiKey.INIT_PRODUCER_ID, error=code)
        stage.task()


class StaleMetadata(Scenario):
    """Brokers that have not received an election yet return the former leader, or its epoch."""

    name = "metadata from before an election"

    def round(self, stage: Stage) -> None:
        for broker in (stage.source, stage.destination):
            for log in broker.topics.topic(stage.topic).logs:
                if stage.dice.random() < 0.5:
                    log.begin_leader_epoch(log.leader_epoch + 1)
            change = _name_gone_leader if stage.dice.random() < 0.5 else _name_former_epoch
            answers(broker, ApiKey.METADATA, partial(change, stage.topic), stage.dice.randint(1, 4))
        stage.task()


def _name_gone_leader(topic: str, response: Any) -> Any:
    here = response.brokers[0]
    # The discard port, on which no process listens.
    response.brokers.append(type(here)(node_id=99, host=here.host, port=9, rack=None))
    for each in _partitions_of(topic, response):
        each.leader_id = 99
    return response


def _name_former_epoch(topic: str, response: Any) -> Any:
    for each in _partitions_of(topic, response):
        each.leader_epoch = max(0, each.leader_epoch - 1)
    return response


def _partitions_of(topic: str, response: Any) -> Iterator[Any]:
    for described in response.topics:
        if described.name == topic:
            yield from described.partitions


class SourceElection(Scenario):
    name = "source leaders elected while tasks die, watermarks behind"

    def round(self, stage: Stage) -> None:
        stage.task()
        lagging_logs = []
        for number, partition in enumerate(stage.partitions):
            if stage.dice.random() < 0.6:
                log = partition.history.log
                found = batches_of(log)
                behind = found[-stage.dice.randint(1, min(4, len(found)))].header.base_offset if found else 0
                after = lagging(stage.source, stage.topic, behind, number)
                after._producers, after._log_end_offset = log._producers, log.log_end_offset
                after._epochs.starts = list(log._epochs.starts)
                after.begin_leader_epoch(log.leader_epoch + 1)
                partition.history.log = after
                lagging_logs.append(after)

        # The followers of the new leaders catch up while the next task aligns.
        def catch_up() -> None:
            for log in lagging_logs:
                log.lag_ends()

        stage.task(Acting(stage.dice.randint(0, 10), catch_up))
        catch_up()


class SourceRetention(Scenario):
    name = "source retention faster than the mirror"
    stops = (r"retention", r"deleted", r"does not have")

    def promise(self, found: Findings) -> list[str]:
        return exact_or_stopped(found)

    def begin(self, stage: Stage) -> None:
        if stage.dice.random() < 0.7:
            stage.set(continue_on=frozenset({IncidentKind.SOURCE_RETENTION}))

    def round(self, stage: Stage) -> None:
        stage.task()
        number = stage.dice.randrange(len(stage.partitions))
        partition = stage.partitions[number]
        log = partition.history.log
        if stage.dice.random() < 0.4 and log.last_stable_offset > log.log_start_offset:
            start = stage.dice.randint(log.log_start_offset, log.last_stable_offset)
            log.delete_records(start)
            kept = set(_visible_from(partition, start))
            partition.keeps(lambda _, record, kept=kept: record in kept)  # type: ignore[misc]


def _visible_from(partition: Partition, start: int) -> list[Content]:
    """Return the records that the source shows from an offset on; their values contain their offsets."""
    return [
        each for each in partition.history.committed if int((each.value or b"").rsplit(b" ", 1)[-1]) >= start
    ]


class LongTransaction(Scenario):
    name = "a transaction that spans everything"

    def begin(self, stage: Stage) -> None:
        self._ends = stage.dice.choice([ABORT, COMMIT])
        self._open = [stage.dice.random() < 0.8 for _ in stage.partitions]
        self._shown: list[list[Content]] = [[] for _ in stage.partitions]
        for number, partition in enumerate(stage.partitions):
            if self._open[number]:
                self._write(number, partition)

    def _write(self, number: int, partition: Partition) -> None:
        history = partition.history
        batch = history.batch(2, flags=batches.TRANSACTIONAL, producer_id=4711, producer_epoch=0)
        before = len(history.committed)
        history.store(batch, shown=True)
        if self._ends == ABORT:
            del history.committed[before:]

    def round(self, stage: Stage) -> None:
        for number, partition in enumerate(stage.partitions):
            if self._open[number] and stage.dice.random() < 0.5:
                self._write(number, partition)
        stage.task()

    def end(self, stage: Stage) -> None:
        for number, partition in enumerate(stage.partitions):
            if self._open[number]:
                partition.history.marker(self._ends, 4711)


# The destination


class DestinationLost(Scenario):
    name = "the destination loses its tail, or its topic"
    stops = (r"lost", r"not at the destination", r"created anew", r"recreated", r"created again", r"deleted")

    def promise(self, found: Findings) -> list[str]:
        return exact_or_stopped(found)

    def begin(self, stage: Stage) -> None:
        if stage.dice.random() < 0.7:
            stage.set(continue_on=frozenset({IncidentKind.DESTINATION_LOSS}))

    def round(self, stage: Stage) -> None:
        stage.task()
        if stage.dice.random() < 0.4:
            number = stage.dice.randrange(len(stage.partitions))
            found = batches_of(stage.destination.log(stage.topic, number))
            if found:
                lost = found[-stage.dice.randint(1, min(3, len(found)))]
                lose_tail(stage.destination, stage.topic, lost.header.base_offset, number)
        elif stage.dice.random() < 0.1:
            broker = stage.destination
            broker.topics.delete(broker.topics.topic(stage.topic))
            broker.create_topic(stage.topic, len(stage.partitions))


class FarOffsets(Scenario):
    name = "destination offsets across 2^31"

    def begin(self, stage: Stage) -> None:
        stage.set(allow_nonempty=True)
        self._from = 2**31 - stage.dice.randint(1, 60)
        for number in range(len(stage.partitions)):
            begin_at(stage.destination.log(stage.topic, number), self._from)


class OddDestination(Scenario):
    name = "a destination that recompresses and sets append times"

    def destination_config(self, dice: random.Random) -> dict[str, str]:
        config = {"compression.type": dice.choice(["gzip", "zstd", "lz4", "uncompressed", "producer"])}
        if dice.random() < 0.5:
            config["message.timestamp.type"] = "LogAppendTime"
        return config


class DestinationDiskFull(Scenario):
    name = "a destination whose disk is full for long"

    def round(self, stage: Stage) -> None:
        stage.destination.faults.clear()
        stage.destination.faults.add(ApiKey.PRODUCE, times=stage.dice.randint(0, 5))
        stage.destination.faults.add(
            ApiKey.PRODUCE,
            error=ErrorCode.KAFKA_STORAGE_ERROR,
            effect=stage.dice.choice(["before", "after"]),
            times=stage.dice.randint(5, 40),
        )
        stage.task()


class OtherWriters(Scenario):
    name = "at least once beside other writers"

    def promise(self, found: Findings) -> list[str]:
        return at_least_once(found)

    def begin(self, stage: Stage) -> None:
        stage.set(delivery=Delivery.AT_LEAST_ONCE)

    def round(self, stage: Stage) -> None:
        for log in stage.destination.topics.topic(stage.topic).logs:
            if stage.dice.random() < 0.6:
                foreign = batches.batch([FOREIGN] * 2, base_offset=log.log_end_offset)
                log.store(memoryview(foreign))
        stage.task()

    def copy(self, stage: Stage, number: int) -> list[Content]:
        return [each for each in super().copy(stage, number) if each.value != FOREIGN]


# Positions and tasks


class PositionsLost(Scenario):
    name = "positions deleted, reset and rolled back, groups changed"
    stops = (
        r"no committed",
        r"times in the source",
        r"is not in the source",
        r"holds the position",
        r"--adopt",
    )

    def promise(self, found: Findings) -> list[str]:
        return exact_or_stopped(found)

    def begin(self, stage: Stage) -> None:
        self._former: list[MirrorPosition] = []

    def round(self, stage: Stage) -> None:
        stage.task()
        stage.source.faults.clear()
        match stage.dice.randrange(6):
            case 0:
                with suppress(ApiError):  # there is no such group yet
                    stage.brokers.forget_pairs()
            case 1 | 2:
                stage.set(group=stage.dice.choice(["mirror", "another", "a third"]))
            case 3 if self._former:
                stage.brokers.commit(stage.dice.choice(self._former))
            case _:
                self._remember(stage)

    def _remember(self, stage: Stage) -> None:
        with suppress(KeyError):  # no position is committed yet
            self._former.append(stage.brokers.position())


class PositionsDeleted(Scenario):
    """Positions are deleted; copy and source are intact and show the position, and no partition stops."""

    name = "positions deleted, and nothing else changed"

    def destination_config(self, dice: random.Random) -> dict[str, str]:
        return OddDestination().destination_config(dice) if dice.random() < 0.3 else {}

    def round(self, stage: Stage) -> None:
        stage.task()
        if stage.dice.random() < 0.4:
            with suppress(ApiError):  # there is no such group yet
                stage.brokers.forget_pairs()


class WrongClock(Scenario):
    name = "tasks whose wall clock is wrong, or is set while they run"

    def round(self, stage: Stage) -> None:
        by_s = stage.dice.choice([-3, -1, 1, 3]) * stage.dice.choice([60, 3600, DAY_MS // 1000])
        steps = stage.dice if stage.dice.random() < 0.5 else None
        with patch.object(copy_loop, "time", _Shifted(by_s, steps)):
            stage.task()


class _Shifted:
    """The module ``time``, with a wrong wall clock, which the dice may set again."""

    def __init__(self, by_s: float, steps: random.Random | None) -> None:
        self._by_s = by_s
        self._steps = random.Random(steps.random()) if steps else None

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)

    def time(self) -> float:
        if self._steps and self._steps.random() < 0.2:
            self._by_s = -self._by_s if self._steps.random() < 0.5 else 0.0
        return time.time() + self._by_s


# The mirror's own driver


class Steered(Mortal):
    """A task's control under which the driver steers it at any check of its lease, and kills it at one."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.dice.randint(0, 60) if stage.dice.random() < 0.5 else 10_000)
        self.steering: TaskSteering = UNSTEERED
        self._topic = stage.topic
        # Of its own: several threads draw, and in no certain order.
        self._dice = random.Random(stage.dice.random())
        self._numbers = 0
        self._allowances: list[Allowance] = []

    def check_lease(self) -> None:
        super().check_lease()
        if self._dice.random() < 0.3:
            self._numbers += 1
            self.steering = self._dice.choice(
                [
                    UNSTEERED,
                    TaskSteering(),
                    TaskSteering(is_paused=True),
                    TaskSteering(paused=frozenset({self._topic}), commits=self._numbers),
                    TaskSteering(total=self._numbers),
                    TaskSteering(rates={self._topic: self._numbers}),
                    TaskSteering(total=self._numbers, rates={self._topic: -self._numbers}),
                ]
            )
            for each in self._allowances:
                each.wake()

    def open_allowance(self) -> Allowance:
        def grant(line: dict[str, Any]) -> None:
            for rate, _, debt in line["wants"]["of"]:
                if self._dice.random() < 0.8:
                    allowance.receive({rate: debt + self._dice.choice([1, 500, 100_000])})

        allowance = Allowance(len(self._allowances), grant)
        self._allowances.append(allowance)
        return allowance


class MirrorSteered(Scenario):
    """Pauses and limits hold up the fetch alone: what was fetched is copied, once."""

    name = "mirror paused, limited and resumed at any step"

    def round(self, stage: Stage) -> None:
        stage.task(Steered(stage))


SCENARIOS: dict[str, Callable[[], Scenario]] = {
    each.name: each
    for each in (
        SourceTopicRecreated,
        SourceFilledAgain,
        SourceCompacted,
        DestinationCompacted,
        SourceErrors,
        StaleMetadata,
        SourceElection,
        SourceRetention,
        LongTransaction,
        DestinationLost,
        FarOffsets,
        OddDestination,
        DestinationDiskFull,
        OtherWriters,
        PositionsLost,
        PositionsDeleted,
        WrongClock,
        MirrorSteered,
        ConsumersMove,
        ConsumersOfDamagedCopies,
    )
}
