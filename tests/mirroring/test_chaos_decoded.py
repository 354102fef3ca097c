"""
Batches of every kind that the mirror decodes and rebuilds, under random faults.

The copy is compared record by record, and ``verify`` has to find the same.
A seed that fails is a test to be written down in the few steps that matter.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

import pytest

from shoal.error_codes import ErrorCode
from shoal.mirroring.model.copy_options import MultiBatch, Rebatch
from shoal.mirroring.model.ranges import CopyRange
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from shoal_broker import Broker
from shoal_broker.storage.log import Log
from tests import batches
from tests.two_brokers import ABORT, COMMIT, NOW_MS, Content, Killed, Mortal, TwoBrokers, Watched
from tests.verifying import Item, encode, verified

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("quick_retries")]

DAY_MS = 86_400_000
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588

PASSING = {
    ApiKey.PRODUCE: [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND],
    ApiKey.FETCH: [ErrorCode.NOT_LEADER_OR_FOLLOWER],
    ApiKey.OFFSET_COMMIT: [ErrorCode.NOT_COORDINATOR],
    ApiKey.OFFSET_FETCH: [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
    ApiKey.INIT_PRODUCER_ID: [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
}


class RandomHistory:
    """
    A source partition with batches of every kind, and the records that a reader must see.

    Attributes:
        shown: The committed records with their offsets.
        identical: Whether all records are the same.
        keep_append_time: Whether the mirror keeps the time at which the source's broker appended.

    """

    def __init__(self, log: Log, dice: random.Random, *, identical: bool, keep_append_time: bool) -> None:
        self.log = log
        self.dice = dice
        self.identical = identical
        self.keep_append_time = keep_append_time
        self.base_timestamp = NOW_MS
        self.next_offset = log.log_end_offset
        self.shown: list[tuple[int, Content]] = []
        self._made = 0

    def from_offset(self, start: int) -> list[Content]:
        return [content for offset, content in self.shown if offset >= start]

    def go_on(self) -> None:
        """Let up to three batches or groups of one kind be written."""
        kind = self.dice.randrange(8)
        for _ in range(self.dice.randint(1, 3)):
            count = self.dice.randint(1, 8)
            match kind:
                case 0:
                    self.batch(count, holes=[delta for delta in range(count) if self.dice.random() < 0.4])
                case 1:
                    self.messages(count)
                case 2:
                    self.wrapper(count)
                case 3:
                    self.transaction()
                case 4:
                    self.next_offset += self.dice.randint(1, 4)
                    self.batch(count)
                case 5:
                    holes = [0] if self.dice.random() < 0.3 else []
                    self.batch(count, holes=holes, append_time=self.base_timestamp + 777)
                case _:
                    self.batch(count)

    # Kinds of batches

    def batch(self, count: int, *, holes: Sequence[int] = (), append_time: int | None = None) -> None:
        """Add a batch of magic 2."""
        first = self.next_offset
        items = [
            Item(timestamp, *self._content(with_headers=True))
            for timestamp in self._timestamps_of_batch(count)
        ]
        deltas = [delta for delta in range(count) if delta not in holes]
        codec = self.dice.choice(list(Codec))
        if deltas:
            left = [items[delta] for delta in deltas]
            built = encode(left, codec, base_offset=first, deltas=deltas, size=count, append_time=append_time)
        else:
            built = batches.batch(
                count, base_offset=first, base_timestamp=items[0].timestamp, holes=range(count)
            )
        self._store(built)
        for delta in deltas:
            content = Content(*items[delta])
            if append_time is not None and self.keep_append_time:
                content = content._replace(timestamp=append_time)
            self.shown.append((first + delta, content))

    def messages(self, count: int) -> None:
        """Add messages of magic 0 or 1, each by itself."""
        magic = self.dice.randint(0, 1)
        append_time = self._append_time_of_messages(magic)
        for offset in self._offsets(count):
            timestamp = self._timestamp_of_message() if append_time is None else append_time
            key, value, _ = self._content()
            flags = 0 if append_time is None else batches.LOG_APPEND_TIME
            self._store(
                batches.message(magic, value, offset=offset, key=key, timestamp=timestamp, attributes=flags)
            )
            self.shown.append((offset, Content(timestamp if magic else -1, key, value, ())))

    def wrapper(self, count: int) -> None:
        """Add a compressed message of magic 0 or 1 with others in it."""
        magic = self.dice.randint(0, 1)
        codec = self.dice.choice([Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
        append_time = self._append_time_of_messages(magic)
        relative = magic == 1 and self.dice.random() < 0.7
        offsets = self._offsets(count)
        inner = []
        for offset in offsets:
            timestamp = self._timestamp_of_message()
            key, value, _ = self._content()
            inner_offset = offset - offsets[0] if relative else offset
            inner.append(batches.message(magic, value, offset=inner_offset, key=key, timestamp=timestamp))
            shown = timestamp if append_time is None else append_time
            self.shown.append((offset, Content(shown if magic else -1, key, value, ())))
        self._store(
            batches.wrapper(
                magic,
                codec,
                inner,
                offset=offsets[-1],
                flags=0 if append_time is None else batches.LOG_APPEND_TIME,
                timestamp=self.base_timestamp if append_time is None else append_time,
            )
        )

    def transaction(self) -> None:
        """Add the batches of a transaction, and its marker."""
        ends = self.dice.choice([ABORT, COMMIT])
        producer_id = self.dice.randint(1, 3)
        for _ in range(self.dice.randint(1, 3)):
            first = self.next_offset
            values = [self._content()[1] or b"" for _ in range(self.dice.randint(1, 4))]
            self._store(
                batches.batch(
                    values,
                    base_offset=first,
                    flags=batches.TRANSACTIONAL,
                    base_timestamp=self.base_timestamp,
                    producer_id=producer_id,
                    producer_epoch=0,
                )
            )
            if ends == COMMIT:
                self.shown += [
                    (first + delta, Content(self.base_timestamp + delta, b"key %d" % delta, value, ()))
                    for delta, value in enumerate(values)
                ]
        self._store(batches.marker(ends, producer_id, base_offset=self.next_offset))

    # Contents of the batches

    def _store(self, batch: bytes | bytearray) -> None:
        self.log.store(memoryview(batch))
        self.next_offset = self.log.log_end_offset

    def _content(
        self, *, with_headers: bool = False
    ) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
        if self.identical:
            return b"key", b"value", ()
        self._made += 1
        key = self.dice.choice([None, b"", b"key %d" % self._made])
        value = self.dice.choice([None, b"", b"value %d" % self._made, b"x" * self.dice.randint(1, 400)])
        count = self.dice.choice([0, 0, 0, 1, 3]) if with_headers else 0
        headers = tuple(
            (f"header {number}", self.dice.choice([None, b"", b"z" * self.dice.randint(1, 200)]))
            for number in range(count)
        )
        return key, value, headers

    def _timestamps_of_batch(self, count: int) -> list[int]:
        base = self.base_timestamp
        if self.identical:
            return [base] * count
        match self.dice.randrange(4):
            case 0:
                return [base + number for number in range(count)]
            case 1:
                return [base + self.dice.randint(-1000, 1000) for _ in range(count)]
            case 2:
                return [base] * count
            case _:
                return [-1] * count

    def _timestamp_of_message(self) -> int:
        if self.identical:
            return self.base_timestamp
        return self.dice.choice([self.base_timestamp, self.base_timestamp + self.dice.randint(-50, 50), -1])

    def _append_time_of_messages(self, magic: int) -> int | None:
        return self.base_timestamp + 5 if magic == 1 and self.dice.random() < 0.3 else None

    def _offsets(self, count: int) -> list[int]:
        """Return ascending offsets from the next one on, some of them left out."""
        offsets = [self.next_offset]
        while len(offsets) < count:
            offsets.append(offsets[-1] + self.dice.choice([1, 1, 1, 1, 2]))
        return offsets


def trouble(broker: Broker, dice: random.Random) -> None:
    """Let a request of some kind, some time from now, go wrong."""
    api = dice.choice(list(PASSING))
    broker.faults.add(api, times=dice.randint(1, 8))  # so many pass
    times = dice.randint(1, 2)
    if dice.random() < 0.5:
        broker.faults.add(api, times=times, drop=dice.choice(["before", "within", "after"]))
    elif api in (ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT):
        effect: Literal["before", "after"] = dice.choice(["before", "after"])
        broker.faults.add(api, times=times, error=dice.choice(PASSING[api]), effect=effect)
    else:
        broker.faults.add(api, times=times, error=dice.choice(PASSING[api]))


def limit_messages(brokers: TwoBrokers, max_message_bytes: int) -> None:
    for log in brokers.destination.topics.topic("topic").logs:
        log.config = replace(log.config, max_message_bytes=max_message_bytes)


def some_topic_config(dice: random.Random) -> dict[str, str]:
    config = {}
    if dice.random() < 0.25:
        config["message_timestamp_type"] = "LogAppendTime"
    if dice.random() < 0.3:
        config["compression_type"] = dice.choice(["gzip", "lz4", "snappy", "zstd", "uncompressed"])
    return config


def some_rebatch(dice: random.Random) -> Rebatch | None:
    if dice.random() < 0.5:
        return None
    return Rebatch(dice.choice([150, 400, 2_000, 60_000]), dice.choice([None, *Codec]))


def without_time(records: Iterable[Content]) -> list[Content]:
    return [record._replace(timestamp=0) for record in records]


def copy_every_kind_of_batch(brokers: TwoBrokers, seed: int) -> None:
    dice = random.Random(seed)
    config = some_topic_config(dice)
    keep_append_time = dice.random() < 0.4
    identical = dice.random() < 0.25
    brokers = brokers.with_settings(keep_append_time=keep_append_time)
    histories = [
        RandomHistory(history.log, dice, identical=identical, keep_append_time=keep_append_time)
        for history in brokers.topic("topic", dice.randint(1, 2), **config)
    ]
    base_timestamp = dice.choice([NOW_MS, NOW_MS - 30 * DAY_MS])
    for history in histories:
        history.base_timestamp = base_timestamp
        history.go_on()
        history.go_on()
    starts = [dice.choice([0, 0, dice.randrange(history.next_offset)]) for history in histories]

    def ranges() -> list[CopyRange]:
        return [
            CopyRange("topic", number, "topic", start, history.log.last_stable_offset)
            for number, (start, history) in enumerate(zip(starts, histories, strict=True))
        ]

    def assert_exact() -> None:
        for number, (start, history) in enumerate(zip(starts, histories, strict=True)):
            copied, expected = brokers.copied("topic", number), history.from_offset(start)
            if "message_timestamp_type" in config:  # the destination's broker sets the times
                copied, expected = without_time(copied), without_time(expected)
            assert copied == expected, f"partition {number}"

    for _ in range(8):
        for history in histories:
            history.go_on()
        for _ in range(dice.randint(0, 3)):
            trouble(dice.choice([brokers.source, brokers.destination]), dice)
        for log in brokers.destination.topics.topic("topic").logs:
            if dice.random() < 0.2:
                log.forget_expired_producers(NOW_MS, DAY_MS)
        if dice.random() < 0.4:
            limit_messages(brokers, dice.choice([250, 500, 900]))
        changed = brokers.with_settings(
            fetch_buffer_bytes=65_536 + dice.choice([200, 700, 2_000, 100_000]),
            commit_interval_ms=dice.choice([0, 5, 60_000]),
            multi_batch=dice.choice([MultiBatch.AUTO, MultiBatch.OFF]),
            rebatch=some_rebatch(dice),
        )
        control = Mortal(dice.randint(0, 25)) if dice.random() < 0.7 else Watched()
        try:
            result = changed.start(ranges(), control=control).result(40.0)
        except Killed:
            continue
        finally:
            limit_messages(brokers, DEFAULT_MAX_MESSAGE_BYTES)
        # A record can be larger than the limit was.
        assert all("MESSAGE_TOO_LARGE" in stopped.reason for stopped in result.stopped)
        if result.complete and not result.stopped:
            assert_exact()
    brokers.source.faults.clear()
    brokers.destination.faults.clear()
    result = brokers.start(ranges(), control=Watched()).result(40.0)
    assert (result.complete, result.stopped) == (True, ())
    assert_exact()
    outcomes = [partition.outcome.name for partition in verified(brokers).partitions]
    assert outcomes == ["EQUAL"] * len(histories)


@pytest.fixture
def brokers(seed: int) -> Iterator[TwoBrokers]:
    """Every second destination takes several batches in a request."""
    with TwoBrokers.started(multi_batch=seed % 2 == 1) as started:
        yield started


@pytest.mark.parametrize(
    "seed", [*range(30), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1_000, 1_400))]
)
def test_every_kind_of_batch_is_copied_exactly_under_faults(brokers: TwoBrokers, seed: int) -> None:
    copy_every_kind_of_batch(brokers, seed)
