"""Resuming in a source that its cleaner changed after records of it were mirrored and not committed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import pytest

from shoal.mirroring.model.copy_options import Rebatch
from shoal.mirroring.model.incidents import IncidentKind
from shoal.protocol.apis import ApiKey
from shoal.records import Codec, read_key_value_headers, read_records
from shoal_broker.storage.log import Log
from tests import batches
from tests.two_brokers import (
    NOW_MS,
    Killed,
    Mortal,
    TwoBrokers,
    batches_of,
    die_after,
    let_pass,
    lose_tail,
)


class Update(NamedTuple):
    """A record of a compacted topic."""

    key: bytes
    value: bytes | None
    timestamp: int


class Compacted:
    """
    The one partition of a compacted source topic.

    Attributes:
        updates: All that were ever written to it and are to be mirrored.

    """

    def __init__(self, brokers: TwoBrokers, **destination_config: str) -> None:
        brokers.source.create_topic("topic", 1, {"cleanup.policy": "compact"})
        config = {key.replace("_", "."): value for key, value in destination_config.items()}
        brokers.destination.create_topic("topic", 1, config)
        self._topic = brokers.source.topics.topic("topic")
        self.updates: list[Update] = []

    @property
    def log(self) -> Log:
        return self._topic.logs[0]

    def write(self, updates: Sequence[Update], *, codec: Codec = Codec.NONE) -> None:
        """Append a batch."""
        self._store(updates, codec=codec)
        self.updates += updates

    def write_aborted(self, updates: Sequence[Update]) -> None:
        """Append the batch of an aborted transaction, and its marker."""
        self._store(updates, attributes=batches.TRANSACTIONAL, producer_id=77, producer_epoch=0)
        self.log.store(memoryview(batches.marker(0, 77, base_offset=self.log.log_end_offset)))

    def _store(self, updates: Sequence[Update], *, codec: Codec = Codec.NONE, **fields: int) -> None:
        base = min(update.timestamp for update in updates)
        records = [
            batches.Record(
                update.value, update.key, offset_delta=number, timestamp_delta=update.timestamp - base
            )
            for number, update in enumerate(updates)
        ]
        built = batches.raw_batch(
            batches.payload(records, codec),
            base_offset=self.log.log_end_offset,
            last_offset_delta=len(updates) - 1,
            base_timestamp=base,
            max_timestamp=max(update.timestamp for update in updates),
            records_count=len(updates),
            **{"attributes": int(codec), **fields},
        )
        self.log.store(memoryview(built))

    def clean(self, before: int | None = None, *, empties: Callable[[], bool] = lambda: False) -> None:
        """
        Keep the last record of each key, as the log cleaner does.

        Args:
            before: The end of the cleaned part; later records stay, and count for no key.
            empties: Whether a batch that lost all its records stays without them.

        """
        end = self.log.log_end_offset if before is None else before
        cleaned, after = self.log, Log(self.log.name, self.log.config)
        found = batches_of(cleaned)
        last: dict[bytes | None, int] = {}
        for batch in found:
            if batch.header.next_offset <= end and not batch.header.is_transactional:
                for record in read_records(batch, 1_000_000):
                    last[read_key_value_headers(record)[0]] = record.offset
        for batch in found:
            header = batch.header
            if header.next_offset > end or header.is_control:
                after.store(batch.view)
                continue
            left = [
                batches.Record(
                    value,
                    key,
                    offset_delta=record.offset - header.base_offset,
                    timestamp_delta=record.timestamp - header.base_timestamp,
                )
                for record in read_records(batch, 1_000_000)
                for key, value, _ in [read_key_value_headers(record)]
                if last.get(key) == record.offset
            ]
            if left or empties():
                built = batches.raw_batch(
                    batches.payload(left, Codec(header.codec_id)) if left else b"",
                    base_offset=header.base_offset,
                    attributes=header.codec_id,
                    last_offset_delta=header.last_offset_delta,
                    base_timestamp=header.base_timestamp,
                    max_timestamp=header.max_timestamp,
                    records_count=len(left),
                )
                after.store(memoryview(built))
        after.end_at(cleaned.log_end_offset)
        self._topic.logs[0] = after
        if cleaned.log_start_offset:
            after.delete_records(cleaned.log_start_offset)

    @property
    def left(self) -> list[Update]:
        """Return the records that the source still has to mirror."""
        return [
            Update(key or b"", value, record.timestamp)
            for batch in batches_of(self.log)
            if not batch.header.is_control and not batch.header.is_transactional
            for record in read_records(batch, 1_000_000)
            if record.offset >= self.log.log_start_offset
            for key, value, _ in [read_key_value_headers(record)]
        ]


def copied(brokers: TwoBrokers) -> list[Update]:
    return [Update(each.key or b"", each.value, each.timestamp) for each in brokers.copied()]


def table_of(updates: Sequence[Update]) -> dict[bytes, bytes | None]:
    return {update.key: update.value for update in updates}


def is_in_order_in(some: Sequence[Update], everything: Sequence[Update]) -> bool:
    """Whether a sequence is another one without some of its elements."""
    rest = iter(everything)
    return all(each in rest for each in some)


def updates_of(text: str, timestamp: Callable[[int], int]) -> list[Update]:
    positions = [each.split("=") for each in text.split()]
    return [
        Update(key.encode(), value.encode(), timestamp(number))
        for number, (key, value) in enumerate(positions)
    ]


REPEATED = "a=1 b=1 c=1 d=1 e=1 K=on f=1 g=1 K=off K=on d=2 g=2"


@pytest.mark.parametrize("repeats_its_time", [False, True])
@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_repeated_update_is_not_taken_for_the_mirrored_one(
    brokers: TwoBrokers, repeats_its_time: bool, timestamp_type: str
) -> None:
    """The source has only the second K=on: the records between the two were never mirrored."""
    source = Compacted(brokers, message_timestamp_type=timestamp_type)
    for update in updates_of(
        REPEATED, lambda number: NOW_MS + (5 if repeats_its_time and number == 9 else number)
    ):
        source.write([update])
    die_after(brokers, 6)
    source.clean()
    result = brokers.start().result()
    assert (result.complete, result.stopped) == (True, ())
    assert table_of(copied(brokers)) == table_of(source.updates)
    assert is_in_order_in(copied(brokers), source.updates)


def test_lost_tail_is_mirrored_again_from_before_a_later_copy_of_its_last_update(
    brokers: TwoBrokers,
) -> None:
    """The destination's records end with the first K=on, and the source has only the second."""
    source = Compacted(brokers)
    for update in updates_of("a=1 K=on b=1 c=1 K=on d=1", lambda number: NOW_MS):
        source.write([update])
    assert brokers.run().complete
    lose_tail(brokers.destination, "topic", 2)
    source.clean()
    going_on = brokers.with_settings(continue_after=frozenset(IncidentKind))
    assert going_on.start().result().stopped == ()
    assert copied(brokers) == source.updates


@pytest.fixture
def brokers(request: pytest.FixtureRequest) -> Iterator[TwoBrokers]:
    """Some destinations take several batches in a request."""
    seed = getattr(request.node, "funcargs", {}).get("seed", 0)
    with TwoBrokers.started(multi_batch=seed % 3 == 1) as started:
        yield started


class Campaign:
    """
    Writes, kills and cleans at random.

    Attributes:
        stops: How often a partition stopped.

    """

    def __init__(self, brokers: TwoBrokers, seed: int, *, timestamps: str, timestamp_type: str) -> None:
        self.dice = random.Random(seed)
        self.brokers = brokers
        self.source = Compacted(brokers, message_timestamp_type=timestamp_type)
        self._timestamps = timestamps
        self._keys = self.dice.choice([2, 4, 8])
        self._written = 0

    def some_updates(self) -> list[Update]:
        return [self._update() for _ in range(self.dice.choice([1, 1, 2, 4]))]

    def _update(self) -> Update:
        self._written += 1
        time = {"each its own": self._written, "few": self.dice.randrange(3), "one": 0}[self._timestamps]
        key, value = self.dice.randrange(self._keys), self.dice.randrange(2)
        return Update(b"key %d" % key, b"value %d" % value, NOW_MS + time)

    def write(self) -> None:
        for _ in range(self.dice.randint(1, 8)):
            if self.dice.random() < 0.15:
                self.source.write_aborted(self.some_updates())
            else:
                self.source.write(self.some_updates(), codec=self.dice.choice([Codec.NONE, Codec.GZIP]))

    def clean(self) -> None:
        before = self.dice.choice([None, self.dice.randint(0, self.source.log.log_end_offset)])
        self.source.clean(before, empties=lambda: self.dice.random() < 0.3)

    def mirror(self, *, dies: bool) -> tuple[str, ...]:
        """Run a task, which may die; return the reason that it stopped for."""
        rebatch = self.dice.choice([None, None, Rebatch(self.dice.choice([200, 2_000]), None)])
        brokers = self.brokers.with_timing(commit_interval_s=60.0).with_settings(rebatch=rebatch)
        if not dies:
            result = brokers.start().result(40.0)
            return tuple(each.reason for each in result.stopped)
        if self.dice.random() < 0.5:
            let_pass(brokers.destination, ApiKey.PRODUCE, self.dice.randint(0, 8))
            brokers.destination.faults.add(ApiKey.PRODUCE, drop=self.dice.choice(["before", "after"]))
        with suppress(Killed):
            result = brokers.start(control=Mortal(self.dice.randint(0, 30))).result(40.0)
            return tuple(each.reason for each in result.stopped)
        brokers.destination.faults.clear()
        return ()

    def check(self) -> None:
        """Expect that nothing is lost, doubled or out of order."""
        there, ever, left = copied(self.brokers), self.source.updates, self.source.left
        assert table_of(there) == table_of(ever)
        assert is_in_order_in(there, ever)
        assert is_in_order_in(left, there)


def resume_at_random(brokers: TwoBrokers, seed: int, timestamps: str, timestamp_type: str) -> None:
    campaign = Campaign(brokers, seed, timestamps=timestamps, timestamp_type=timestamp_type)
    for _ in range(6):
        campaign.write()
        dies = campaign.dice.random() < 0.8
        assert campaign.mirror(dies=dies) == ()
        brokers.destination.faults.clear()
        if campaign.dice.random() < 0.7:
            campaign.clean()
    assert campaign.mirror(dies=False) == ()
    campaign.check()


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("seed", range(6))
def test_compacted_source_is_mirrored_exactly_after_any_crash(
    brokers: TwoBrokers, seed: int, timestamp_type: str
) -> None:
    resume_at_random(brokers, seed, "each its own", timestamp_type)


@pytest.mark.parametrize("timestamps", ["few", "one"])
@pytest.mark.parametrize("seed", range(6))
def test_equal_updates_of_a_compacted_source_are_mirrored_exactly(
    brokers: TwoBrokers, seed: int, timestamps: str
) -> None:
    resume_at_random(brokers, seed, timestamps, "CreateTime")
