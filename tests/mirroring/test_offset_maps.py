"""
The offset map of a real copy against brute force, while everything goes wrong.

Logs with batches of every kind are mirrored by tasks that die, through compaction, retention, losses on both
sides, foreign records and refused batches. Then each offset is translated in both directions, and compared
with the place of each record at the destination. Each record has a value of its own, so the comparison needs
neither the map nor the mirror's account. A seed that fails is a test to be written down in the few steps that
matter.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import pytest
from aiokafka.record import MemoryRecords

from shoal.client.cluster import Cluster
from shoal.mirroring.model.counting import Question
from shoal.mirroring.model.incidents import Delivery, IncidentKind
from shoal.mirroring.model.offset_map import Exactness, OffsetMap, Translation
from shoal.mirroring.sync.translations import CopyMap, MirroredLog, Translations
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from shoal_broker.api_error import ApiError
from shoal_broker.storage.log import Log
from tests import batches
from tests.campaigns.fault_events import some_rebatch
from tests.two_brokers import Killed, Mortal, TwoBrokers, Watched, batches_of, compacted, let_pass, lose_tail
from tests.world.source import SourcePartition, Written

PARTITION = TopicPartition("topic", 0)
FOREIGN = b"of somebody else"


class Trial:
    """
    A mirrored partition, and the events of its life.

    Attributes:
        history: The source.
        is_over: Whether the mirror stopped the partition, or did not notice an incident.
        has_doubles: Whether records may be at the destination twice.
        has_lost_tail: Whether the copy lost its tail, and no task has seen that.
        has_forgotten: Whether a position was deleted.

    """

    def __init__(self, brokers: TwoBrokers, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.compacts = dice.random() < 0.5
        policy = {"cleanup.policy": "compact,delete" if self.compacts else "delete"}
        brokers.source.create_topic("topic", 1, policy)
        brokers.destination.create_topic("topic", 1)
        self.has_doubles = dice.random() < 0.2
        self.brokers = brokers.with_settings(
            continue_after=frozenset(IncidentKind),
            delivery=Delivery.AT_LEAST_ONCE if self.has_doubles else Delivery.EXACTLY_ONCE,
        )
        log = brokers.source.log("topic")
        self.history = SourcePartition(0, log, dice, keeps_append_time=False, has_keys=False)
        self.is_over = False
        self.has_lost_tail = self.has_forgotten = False

    # Events

    def run(self, *, dies: bool = True) -> list[str]:
        """Run a task, which may die; return the kinds of its incidents."""
        dice = self.dice
        if dies and dice.random() < 0.4:
            let_pass(self.brokers.destination, ApiKey.PRODUCE, dice.randint(0, 3))
            self.brokers.destination.faults.add(
                ApiKey.PRODUCE, drop=dice.choice(["before", "within", "after"])
            )
        # The first copy of a record may have landed that is refused when it is sent again.
        if dies and not self.has_doubles and dice.random() < 0.1:
            self.limit_messages(250)
        interval_s = dice.choice([0.0, 0.0, 0.005, 60.0])
        changed = self.brokers.with_timing(commit_interval_s=interval_s).with_settings(
            fetch_buffer_bytes=65_536 + dice.choice([200, 2_000, 100_000]),
            multi_batch=dice.random() < 0.5,
            rebatch=some_rebatch(dice),
        )
        control = Mortal(dice.randint(0, 25)) if dies and dice.random() < 0.6 else Watched()
        self.has_lost_tail = False
        with suppress(Killed):
            self.is_over = bool(changed.start(control=control).result(40.0).stopped)
        self.brokers.destination.faults.clear()
        self.limit_messages(1_048_588)
        each = (each for report in control.reports for each in report["partitions"])
        incidents = [incident[0] for partition in each for incident in partition["incidents"]]
        if self.has_forgotten and IncidentKind.SOURCE_RESET.value in incidents:
            self.has_doubles = True  # all is copied again, behind the copies that the position was of
        return incidents

    def limit_messages(self, max_message_bytes: int) -> None:
        topics = self.brokers.destination.topics
        topics.alter(topics.topic("topic"), {"max.message.bytes": str(max_message_bytes)})

    def write(self) -> None:
        self.history.grow()

    def write_foreign_records(self) -> None:
        log = self.brokers.destination.log("topic")
        values = [FOREIGN] * self.dice.randint(1, 4)
        log.store(memoryview(batches.batch(values, base_offset=log.log_end_offset)))

    def lose_the_tail_of_the_copy(self) -> None:
        found = batches_of(self.brokers.destination.log("topic"))
        lost = self.dice.randint(0, min(3, len(found)))
        if lost:
            lose_tail(self.brokers.destination, "topic", found[-lost].header.base_offset)
            self.has_lost_tail = True

    def lose_the_tail_of_the_source(self) -> None:
        """Let the source lose records; the mirror looks before others get their offsets."""
        self.run(dies=False)
        start, end = self.history.log.log_start_offset, self.history.next_offset
        if start or self.is_over:
            return
        lost_from = self.dice.randint(max(start, end - 10), end)
        after = lose_tail(self.brokers.source, "topic", lost_from)
        self.history.lost_its_tail(after)
        if after.log_end_offset < end and IncidentKind.SOURCE_RESET.value not in self.run(dies=False):
            self.is_over = True  # messages of an old format show no leader epoch

    def delete_from_the_source(self) -> None:
        log = self.history.log
        behind = self.dice.choice([0.2, 0.5, 1.0]) * (self.history.next_offset - log.log_start_offset)
        self.history.deletes_before(log.log_start_offset + int(behind))

    def delete_from_the_copy(self) -> None:
        log = self.brokers.destination.log("topic")
        log.delete_records(self.dice.randint(log.log_start_offset, log.log_end_offset))

    def clean_the_source(self) -> None:
        """Remove records as a log cleaner does, also those that are not mirrored yet."""
        if not self.compacts:
            return
        cleaned, after = self.history.log, Log(self.history.log.name, self.history.log.config)
        share = self.dice.choice([0.1, 0.5, 0.9])
        removed: set[int] = set()
        for batch in batches_of(cleaned):
            header = batch.header
            if header.magic != 2 or header.is_control or self.dice.random() < 0.3:
                after.store(batch.view)
                continue
            gone = {
                each for each in range(header.base_offset, header.next_offset) if self.dice.random() < share
            }
            left = compacted(batch, lambda offset, gone=gone: offset not in gone)  # type: ignore[misc]
            removed |= gone
            if len(gone) <= header.last_offset_delta or self.dice.random() < 0.3:
                after.store(memoryview(batches.patched(left, 12, header.leader_epoch.to_bytes(4))))
        after.inherit(cleaned)
        self.brokers.source.topics.topic("topic").logs[0] = after
        if cleaned.log_start_offset:
            after.delete_records(cleaned.log_start_offset)
        self.history.was_cleaned(after, lambda offset: offset not in removed)

    def create_the_source_again(self) -> None:
        self.run(dies=False)
        if self.is_over or self.dice.random() < 0.7:
            return
        topics = self.brokers.source.topics
        topics.delete(topics.topic("topic"))
        self.brokers.source.create_topic(
            "topic", 1, {"cleanup.policy": "compact,delete" if self.compacts else "delete"}
        )
        self.history.was_created_again(self.brokers.source.log("topic"))
        self.run(dies=False)

    def create_the_copy_again(self) -> None:
        if self.dice.random() < 0.3:
            self.brokers.destination.topics.delete(self.brokers.destination.topics.topic("topic"))
            self.brokers.destination.create_topic("topic", 1)

    def forget_the_position(self) -> None:
        if self.dice.random() < 0.3:
            with suppress(ApiError):  # it is gone already
                self.brokers.forget_pairs()
            self.has_forgotten = True

    # The comparison

    def landed(self) -> dict[Written, list[int]]:
        """Return the destination's offsets of each record, in the order of its source offsets."""
        log = self.brokers.destination.log("topic")
        shown = {each.content.value: each for each in self.history.of_this_topic if each.is_shown}
        found: dict[Written, list[int]] = {}
        for batch in batches_of(log):
            decoded = MemoryRecords(bytes(batch.view)).next_batch()
            assert decoded is not None
            for record in decoded:
                if record.value in shown:
                    found.setdefault(shown[record.value], []).append(record.offset)
        return found

    def translations(self) -> Counter[Exactness]:
        """Compare each offset's translation with the logs; return how many there were of each exactness."""
        if self.has_doubles and self.has_lost_tail:
            # Of a record whose later copy is lost, the earlier one is no place to continue: it comes again.
            self.run(dies=False)
            if self.is_over:
                return Counter()
        position = self.brokers.position()
        offsets = position.offsets
        landed = self.landed()
        # A reader of the source would not see the others any more.
        present = needed = {each for each in landed if each.is_there}
        if self.has_doubles:  # what is behind the position is mirrored again
            needed = {each for each in present if each.offset < position.source_offset}
        first_copied = self.brokers.destination.log("topic").log_start_offset
        end, copy_end = self.history.next_offset, self.brokers.destination.log("topic").log_end_offset
        forwards = [
            Question(each, is_source=True) for each in range(self.history.log.log_start_offset, end + 2)
        ]
        backwards = [Question(each, is_source=False) for each in range(first_copied, copy_end + 2)]
        settings = self.brokers.settings
        with Cluster(settings.source) as source:
            source.refresh(["topic"])
            log = MirroredLog(source, settings.source.isolation_level, settings.records_to_mirror)
            copy = CopyMap(PARTITION, offsets, (None, None), log)
            found = Translations().translate({copy: [*forwards, *backwards]})[copy]
        seen: Counter[Exactness] = Counter()
        for question in [*forwards, *backwards]:
            there = found[question]
            assert isinstance(there, Translation), there
            if question.is_source:
                wanted = {each for each in landed if each.offset >= question.offset}
                read = Counter(each for each, places in landed.items() for at in places if at >= there.offset)
            else:
                wanted = {each for each, places in landed.items() if places[0] >= question.offset}
                read = Counter(each for each in present if each.offset >= there.offset)
            seen[there.exactness] += 1
            self._check(question.offset, there, offsets, wanted & needed, wanted, read)
        return seen

    def _check(
        self,
        offset: int,
        found: Translation,
        offsets: OffsetMap,
        needed: set[Written],
        wanted: set[Written],
        read: Counter[Written],
    ) -> None:
        about = offset, found, offsets
        assert needed <= read.keys(), ("skipped", about, _offsets_of(needed - read.keys()))
        if found.exactness is Exactness.EXACT:
            twice = _offsets_of((read - Counter(wanted)).keys())
            assert not twice, ("read twice", about, twice)


def _offsets_of(records: Iterable[Written]) -> list[int]:
    return sorted(each.offset for each in records)


def events_of(trial: Trial) -> list[Callable[[], object]]:
    usual: list[Callable[[], object]] = [trial.write, trial.write, trial.run, trial.run]
    incidents: list[Callable[[], object]] = [
        trial.write_foreign_records,
        trial.lose_the_tail_of_the_copy,
        trial.lose_the_tail_of_the_source,
        trial.delete_from_the_source,
        trial.delete_from_the_copy,
        trial.clean_the_source,
        trial.create_the_source_again,
        trial.create_the_copy_again,
        trial.forget_the_position,
    ]
    return [*usual, *usual, *trial.dice.sample(incidents, trial.dice.choice([0, 1, 2, 4, 9]))]


def translate_after_everything(brokers: TwoBrokers, seed: int) -> Counter[Exactness]:
    trial = Trial(brokers, seed)
    trial.write()
    trial.run(dies=False)
    seen: Counter[Exactness] = Counter()
    events = events_of(trial)
    for number in range(30):
        trial.dice.choice(events)()
        if trial.is_over:
            break
        if number == 15:
            with suppress(KeyError):
                seen += trial.translations()
    with suppress(KeyError):  # the position was deleted
        seen += trial.translations()
    return seen


@pytest.fixture
def brokers(seed: int) -> Iterator[TwoBrokers]:
    """Every second destination takes several batches in a request."""
    with TwoBrokers.started(multi_batch=seed % 2 == 1) as started:
        yield started


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1_000, 1_300))]
)
def test_translation_of_each_offset_skips_nothing_and_is_right_if_exact(
    brokers: TwoBrokers, seed: int
) -> None:
    translate_after_everything(brokers, seed)


if __name__ == "__main__":
    import sys

    first, end = map(int, sys.argv[1:])
    altogether: Counter[Exactness] = Counter()
    for number in range(first, end):
        with TwoBrokers.started(multi_batch=number % 2 == 1) as two:
            altogether += translate_after_everything(two, number)
    for exactness in Exactness:
        print(
            f"{altogether[exactness]:9,} {exactness.value}: {altogether[exactness] / altogether.total():.1%}"
        )
