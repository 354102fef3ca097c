"""Offsets that a map leaves open, counted in the source's log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from shoal.client.cluster import Cluster
from shoal.error_codes import ErrorCode
from shoal.errors import ShoalError
from shoal.mirroring.model.offset_map import Exactness, Milestone, OffsetMap, Question, Stretch, Translation
from shoal.mirroring.sync.translations import Asked, MirroredCopy, MirroredLog, count
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from shoal.topic_partition import TopicPartition
from tests.world.clusters import TwoBrokers
from tests.world.history import ABORT, COMMIT, History

PARTITION = TopicPartition("topic", 0)
EXACT, AT_LEAST = Exactness.EXACT, Exactness.AT_LEAST


class Log:
    """The translations by a map whose only milestones are its beginning and its end."""

    def __init__(self, source: Cluster, brokers: TwoBrokers, copied: Iterable[int], end: int) -> None:
        self.copied = list(copied)
        settings = brokers.settings
        self.log = MirroredLog(source, settings.source.isolation_level, settings.records_to_mirror)
        self.offsets = OffsetMap((Milestone(0, 0), Milestone(end, len(self.copied))))

    def answers(
        self, questions: Iterable[Question], most_counted: int | None = None
    ) -> dict[Question, Translation | ShoalError]:
        copy = MirroredCopy(PARTITION, PARTITION, self.offsets, (None, None), self.log)
        asked = [Asked(copy, each) for each in questions]
        counted = count(asked, most_counted=most_counted)
        return {each.question: counted.get(each, each.translation) for each in asked}

    def forwards(self, *offsets: int, most_counted: int | None = None) -> list[Translation | ShoalError]:
        found = self.answers((Question(each, is_source=True) for each in offsets), most_counted)
        return [found[Question(each, is_source=True)] for each in offsets]

    def backwards(self, *offsets: int) -> list[Translation | ShoalError]:
        found = self.answers(Question(each, is_source=False) for each in offsets)
        return [found[Question(each, is_source=False)] for each in offsets]

    def truth(self, offset: int) -> Translation:
        return Translation(sum(each < offset for each in self.copied), EXACT)


@contextmanager
def asked_of(brokers: TwoBrokers, copied: Iterable[int], end: int) -> Iterator[Log]:
    with Cluster(brokers.settings.source) as source:
        source.refresh(["topic"])
        yield Log(source, brokers, copied, end)


def mixed(history: History) -> list[int]:
    """Fill a log with 23 offsets of all kinds; return those that a copy takes."""
    history.plain(2).transaction(3, ends=ABORT).transaction(2, ends=COMMIT).holed(4, [1, 2]).plain(3)
    history.transaction(3, ends=COMMIT).plain(3)
    return [0, 1, 6, 7, 9, 12, 13, 14, 15, 16, 17, 18, 20, 21, 22]


def test_offset_behind_a_batch_with_holes_needs_it_not_decoded(brokers: TwoBrokers) -> None:
    """This batch cannot be decoded, and its header has the number of its records."""
    (history,) = brokers.topic()
    damaged = history.batch(5, holes=[2], codec=Codec.GZIP)
    damaged[-1] ^= 1
    history.store(damaged)
    history.plain(3)
    with asked_of(brokers, [0, 1, 3, 4, 5, 6, 7], 8) as asked:
        assert asked.forwards(6) == [(5, EXACT)]
        assert asked.forwards(3) == [(2, AT_LEAST)]  # what arithmetic says


def test_offset_behind_records_that_the_source_has_deleted_is_counted_from_the_end(
    brokers: TwoBrokers,
) -> None:
    (history,) = brokers.topic()
    copied = mixed(history)
    history.log.delete_records(12)
    with asked_of(brokers, copied, 23) as asked:
        kept = range(12, 23)
        assert asked.forwards(*kept) == [asked.truth(each) for each in kept]
        assert asked.forwards(5)[0] == (0, AT_LEAST)  # of a deleted offset nothing can be counted
        back = asked.backwards(*range(5, len(copied)))
        assert back == [Translation(each, EXACT) for each in copied[5:]]


def test_offset_of_a_source_that_was_compacted_since_is_a_lower_bound(brokers: TwoBrokers) -> None:
    """The copy got eight records, of which the source has six."""
    (history,) = brokers.topic()
    history.holed(5, [1, 3]).plain(2).transaction(1, ends=COMMIT)
    with asked_of(brokers, range(8), 9) as asked:
        assert asked.forwards(1, 2, 4, 5) == [(1, EXACT), (1, AT_LEAST), (4, EXACT), (5, EXACT)]


def test_offsets_of_many_groups_are_counted_from_one_answer(brokers: TwoBrokers) -> None:
    (history,) = brokers.topic()
    copied = mixed(history)
    fetches = brokers.source.faults.add(ApiKey.FETCH, times=None)
    with asked_of(brokers, copied, 23) as asked:
        assert asked.forwards(*range(1, 23)) == [asked.truth(each) for each in range(1, 23)]
        assert fetches.hits == 1


def test_offset_further_than_the_bound_is_a_lower_bound(brokers: TwoBrokers) -> None:
    (history,) = brokers.topic()
    for _ in range(40):
        history.plain(1).transaction(1, ends=COMMIT)
    copied = [each for each in range(120) if each % 3 != 2]
    with asked_of(brokers, copied, 120) as asked:
        assert asked.forwards(60, most_counted=60) == [asked.truth(60)]
        (found,) = asked.forwards(66, most_counted=60)
        assert isinstance(found, Translation)
        assert found.exactness is AT_LEAST


def test_leader_that_refuses_is_the_answer_of_open_offsets_alone(brokers: TwoBrokers) -> None:
    (history,) = brokers.topic()
    copied = mixed(history)
    with asked_of(brokers, copied, 23) as asked:
        brokers.source.faults.add(ApiKey.FETCH, error=ErrorCode.UNKNOWN_SERVER_ERROR, times=None)
        first, within = asked.forwards(0, 10)
        assert first == (0, EXACT)
        assert isinstance(within, ShoalError)


def test_offset_near_an_incident_asks_the_source_for_nothing(brokers: TwoBrokers) -> None:
    brokers.topic()
    with asked_of(brokers, range(9), 9) as asked:
        asked.offsets = OffsetMap((Milestone(0, 0), Milestone(9, 5, Stretch.BROKEN)))
        requests = [brokers.source.faults.add(api, times=None) for api in (ApiKey.FETCH, ApiKey.LIST_OFFSETS)]
        assert asked.forwards(4) == [(0, AT_LEAST)]
        assert [each.hits for each in requests] == [0, 0]


def test_offset_of_a_log_whose_last_offsets_have_no_record_is_exact(brokers: TwoBrokers) -> None:
    """Compaction had removed them before the mirror came."""
    (history,) = brokers.topic()
    history.holed(5, [1, 4]).gap(3)
    with asked_of(brokers, [0, 2, 3], 8) as asked:
        assert asked.forwards(1, 2, 3) == [(1, EXACT), (1, EXACT), (2, EXACT)]
