"""Copies that other groups and other programs made are taken over if they are faithful, and only then."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

from shoal.client.cluster import Cluster
from shoal.client.coordinator import MemberId
from shoal.error_codes import ErrorCode
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.positions import GroupPositions
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import FetchResponse
from shoal.records import Codec
from shoal.topic_partition import TopicPartition
from tests.group_member import GroupMember
from tests.world import batches
from tests.world.batches import Content, encode
from tests.world.clusters import TwoBrokers, die_after
from tests.world.contents import batches_of
from tests.world.control import Killed, Mortal, Watched, incidents_of
from tests.world.faults import Held, answers
from tests.world.history import ABORT, COMMIT, NOW_MS, History
from tests.world.logs import may_compact
from tests.world.sentences import GROWN, UNFAITHFUL
from tests.world.task import TaskResult
from tests.world.verifying import cut, lay_out
from tests.world.waiting import wait_until

#: Take over copies that begin later than the source.
LATER = frozenset({IncidentKind.SOURCE_RETENTION})


@pytest.fixture
def adopting(brokers: TwoBrokers) -> TwoBrokers:
    return brokers.with_settings(adopt=True)


def varied(history: History, *counts: int) -> History:
    """Add batches that differ in their times, as those of real producers do."""
    for count in counts:
        history.base_timestamp += 7
        history.plain(count)
    return history


def recut(brokers: TwoBrokers, records: Sequence[Content], *sizes: int) -> None:
    """Let the destination hold records in other batches, as MirrorMaker 2 writes them."""
    lay_out(brokers, cut(records, *sizes, codec=Codec.GZIP))


def completes(brokers: TwoBrokers) -> None:
    assert brokers.start().result() == TaskResult((), complete=True)


def mirrors_exactly(brokers: TwoBrokers, history: History, skipped: int = 0) -> None:
    """Run a task that adopts, then copy more records with a crash, and expect each record once."""
    completes(brokers)
    assert brokers.copied() == history.committed[skipped:]
    varied(history, 2, 3, 1)
    die_after(brokers, 2)
    completes(brokers)
    assert brokers.copied() == history.committed[skipped:]


def refused(brokers: TwoBrokers) -> str:
    """Run a task that refuses a copy, and expect that it writes and commits nothing; return the reason."""
    before = [bytes(each.view) for each in batches_of(brokers.destination.log("topic"))]
    (stopped,) = brokers.start().result().stopped
    assert [bytes(each.view) for each in batches_of(brokers.destination.log("topic"))] == before
    assert not has_pair(brokers)
    return stopped.reason


def has_pair(brokers: TwoBrokers) -> bool:
    with Cluster(brokers.settings.source) as cluster:
        positions = GroupPositions(cluster, brokers.settings.group, MemberId)
        return bool(positions.read([TopicPartition("topic", 0)]))


# Faithful copies


def test_copy_of_another_group_continues_exactly_once(adopting: TwoBrokers, history: History) -> None:
    varied(history, 3, 1, 4)
    adopting.with_settings(group="former").run()
    varied(history, 2)
    mirrors_exactly(adopting, history)


def test_records_before_a_copy_count_as_missing_only_if_they_are_to_be_mirrored(
    adopting: TwoBrokers, history: History
) -> None:
    varied(history, 4).transaction(3, ends=ABORT)
    varied(history, 4, 4)
    recut(adopting, history.committed[6:], 3)
    assert re.search(r"\b6 records before .* offset 10\b", refused(adopting))


@pytest.mark.parametrize("magic", [0, 1])
def test_records_before_a_copy_count_within_a_wrapper_of_an_old_format(
    adopting: TwoBrokers, history: History, magic: int
) -> None:
    """The header of a wrapper has the offset of its last message alone."""
    messages = [Content(NOW_MS + each, None, b"%d" % each, ()) for each in range(3)]
    history.messages(messages, magic, Codec.GZIP)
    varied(history, 4, 4)
    recut(adopting, history.committed[1:], 3)
    assert re.search(r"\b1 records before .* offset 1\b", refused(adopting))


def test_copy_that_began_later_is_an_incident_with_its_missing_records(
    adopting: TwoBrokers, history: History
) -> None:
    varied(history, 4, 4, 4, 4)
    recut(adopting, history.committed[6:14], 3)
    control = Watched()
    assert adopting.with_settings(continue_after=LATER).start(control=control).result().complete
    (incident,) = incidents_of(control)
    assert (incident[0], incident[2:]) == ("source-retention", [6, True])
    assert UNFAITHFUL[1] in incident[1]


@pytest.mark.parametrize(("start", "missing"), [(3, 3), (6, 0), (16, 0)])
def test_records_before_the_start_of_the_mirror_are_not_missing(
    adopting: TwoBrokers, history: History, start: int, missing: int
) -> None:
    varied(history, 4, 4, 4, 4)
    recut(adopting, history.committed[6:14], 3)
    from_there = [each._replace(start_offset=start) for each in adopting.ranges()]
    result = adopting.run(from_there)
    assert [f"{missing} records" in each.reason for each in result.stopped] == ([True] if missing else [])
    assert adopting.copied() == history.committed[6 : 14 if missing else 16]


def test_copy_that_began_later_and_deleted_its_beginning_is_refused(
    adopting: TwoBrokers, history: History
) -> None:
    varied(history, *[4] * 10)
    recut(adopting, history.committed[6:38], 4)
    adopting.destination.log("topic").delete_records(8)
    said = refused(adopting)
    assert re.search(r"\b14\b.*\b8\b.*\b6\b.*missing", said)
    assert "--continue-after source-retention" in said


def test_copy_whose_source_lost_its_beginning_to_retention_continues(
    adopting: TwoBrokers, history: History
) -> None:
    varied(history, *[4] * 8)
    recut(adopting, history.committed[:26], 3, 5)
    history.log.delete_records(8)
    completes(adopting)
    adopting.assert_exact(history)


def test_copy_that_lost_its_beginning_to_retention_continues(adopting: TwoBrokers, history: History) -> None:
    varied(history, 4, 4, 4, 4)
    recut(adopting, history.committed[:14], 4, 4)
    adopting.destination.log("topic").delete_records(8)
    completes(adopting)
    assert adopting.copied() == history.committed[8:]


def store_in_transaction(there: History, items: Sequence[Content], *, ends: int | None) -> None:
    """Write a batch as an exactly-once MirrorMaker 2 does, with its marker if the transaction has ended."""
    batch = encode(items, Codec.GZIP, base_offset=there.next_offset, flags=batches.TRANSACTIONAL)
    there.store(batches.patched(batch, 43, (77).to_bytes(8) + (0).to_bytes(2)))
    if ends is not None:
        there.marker(ends)


def test_records_of_an_aborted_transaction_at_the_destination_do_not_count_as_copied(
    adopting: TwoBrokers, history: History
) -> None:
    varied(history, 2, 3)
    items = history.committed
    there = History(adopting.destination.log("topic"))
    store_in_transaction(there, items[:2], ends=COMMIT)
    store_in_transaction(there, items[2:], ends=ABORT)
    completes(adopting)
    assert adopting.position().destination_offset == 2 + 1 + 3 + 1 + 3


def test_open_transaction_at_the_destination_delays_the_adoption(
    adopting: TwoBrokers, history: History
) -> None:
    varied(history, 2, 3)
    items = history.committed
    there = History(adopting.destination.log("topic"))
    store_in_transaction(there, items[:2], ends=None)
    control = Watched()
    running = adopting.start(control=control)
    wait_until(lambda: any("a transaction is open from offset 0 on" in each for each in control.waited_for))
    there.marker(COMMIT)
    assert running.result() == TaskResult((), complete=True)
    assert adopting.position().destination_offset == 2 + 1 + 3


# Copies that differ


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda items: items[:5] + items[6:], "missing: source offsets 5"),
        (
            lambda items: [*items[:5], items[5]._replace(value=b"other"), *items[6:]],
            "altered: source offsets 5",
        ),
        (lambda items: [*items[:6], *items[5:]], "extra: destination offsets 6"),
        (
            lambda items: [*items[:5], Content(NOW_MS, None, b"foreign"), *items[5:]],
            "extra: destination offsets 5",
        ),
    ],
    ids=["missing", "altered", "doubled", "foreign"],
)
def test_copy_with_one_record_that_differs_is_refused_with_its_offset(
    adopting: TwoBrokers, history: History, edit: Callable[[list[Content]], list[Content]], sentence: str
) -> None:
    varied(history, 4, 4, 4)
    items = edit(history.committed)
    lay_out(adopting, cut(items, 3, 2, codec=Codec.GZIP))
    said = refused(adopting)
    assert UNFAITHFUL[0] in said
    assert sentence in said
    assert "Nothing was written" in said


def test_copy_that_may_not_be_read_is_not_called_unfaithful(adopting: TwoBrokers, history: History) -> None:
    varied(history, 4)
    lay_out(adopting, cut(history.committed))
    adopting.source.faults.add(ApiKey.FETCH, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None)
    said = refused(adopting)
    assert "Grant READ" in said
    assert "faithful" not in said


def test_copy_from_which_compaction_removed_a_record_is_refused(
    adopting: TwoBrokers, history: History
) -> None:
    items = [Content(NOW_MS + number, b"key %d" % (number % 12), b"%d" % number) for number in range(17)]
    history.store(encode(items))
    del items[3]  # the log has its key again behind it
    lay_out(adopting, [encode(items, deltas=[*range(3), *range(4, 17)])])
    may_compact(adopting.destination)
    assert re.search(r"compaction .*: 1\b", refused(adopting))


def test_copy_with_aborted_records_is_refused_with_the_isolation_level_that_takes_it(
    adopting: TwoBrokers, history: History
) -> None:
    varied(history, 4).transaction(3, ends=ABORT)
    varied(history, 4)
    recut(adopting, history.uncommitted, 3, 6)
    said = refused(adopting)
    assert all(each in said for each in ("extra:", "offsets 4 to 6", "isolation.level=read_uncommitted"))
    assert "isolation.level=read_uncommitted" in said
    uncommitted = adopting.read_uncommitted()
    completes(uncommitted)
    history.transaction(2, ends=ABORT)
    completes(uncommitted)
    assert uncommitted.copied() == history.uncommitted


def test_copy_whose_records_are_in_the_source_several_times_is_refused(
    adopting: TwoBrokers, history: History
) -> None:
    history.plain(1)
    twin = batches.batch([b"twin"], base_timestamp=NOW_MS)
    for _ in range(3):
        twin[:8] = history.next_offset.to_bytes(8)
        history.store(twin, shown=True)
    recut(adopting, history.committed[1:2])
    assert "faithful" in refused(adopting)


def test_later_start_with_another_place_before_it_is_refused(adopting: TwoBrokers, history: History) -> None:
    twin = batches.batch([b"a", b"b"], base_timestamp=NOW_MS)
    for _ in range(2):
        twin[:8] = history.next_offset.to_bytes(8)
        history.store(twin, shown=True)
    history.log.delete_records(1)
    recut(adopting, history.committed[3:4])
    assert UNFAITHFUL[2] in refused(adopting)


def test_copy_that_ends_with_a_record_which_the_source_has_again_is_refused(
    adopting: TwoBrokers, history: History
) -> None:
    varied(history, 3)
    for _ in range(2):
        twin = batches.batch([b"same"], base_timestamp=1)
        twin[:8] = history.next_offset.to_bytes(8)
        history.store(twin, shown=True)
    recut(adopting, history.committed[:4], 2)
    varied(history, 3)
    history.log.delete_records(4)
    assert UNFAITHFUL[2] in refused(adopting)


# Events during an adoption


def test_task_that_dies_before_the_commit_leaves_no_trace(adopting: TwoBrokers, history: History) -> None:
    varied(history, 4, 4, 4)
    recut(adopting, history.committed[:9], 3)
    adopting.source.faults.add(ApiKey.OFFSET_COMMIT, drop="before")
    with pytest.raises(Killed):
        adopting.run(control=Mortal())
    assert not has_pair(adopting)
    assert adopting.destination.log("topic").log_end_offset == 9
    mirrors_exactly(adopting, history)


def test_copy_whose_position_comes_in_an_old_generation_is_taken_over_in_the_next(
    adopting: TwoBrokers, history: History
) -> None:
    varied(history, 3, 1, 4)
    recut(adopting, history.committed, 5)
    fault = adopting.source.faults.add(ApiKey.OFFSET_COMMIT, error=ErrorCode.ILLEGAL_GENERATION)
    mirrors_exactly(adopting, history)
    assert fault.hits == 1


def test_copy_that_grows_while_it_is_compared_is_refused(adopting: TwoBrokers, history: History) -> None:
    varied(history, 4, 4, 4)
    items = history.committed
    lay_out(adopting, cut(items[:6], 3))
    there = History(adopting.destination.log("topic"))

    def write_more(response: FetchResponse) -> FetchResponse:
        there.store(encode(items[6:8], base_offset=6))
        return response

    answers(adopting.destination, ApiKey.FETCH, write_more)
    (stopped,) = adopting.start().result().stopped
    grown = GROWN.search(stopped.reason)
    assert grown
    assert grown.groups() == ("6", "8")
    assert "Stop that program" in stopped.reason
    assert not has_pair(adopting)


def test_copy_with_a_running_mirror_is_refused(adopting: TwoBrokers, history: History) -> None:
    varied(history, 4, 4)
    former = adopting.with_settings(group="former")
    former.run()
    with Cluster(adopting.settings.source) as cluster:
        member = GroupMember(
            cluster, "former", protocol="shoal-x", instance_id="x", session_timeout_ms=10_000
        )
        member.join([TopicPartition("topic", 0)])
        said = refused(adopting)
        assert all(each in said for each in ("group 'former'", "at work", "client 'shoal'"))
        member.leave()


def test_comparison_reports_its_progress_and_ends_with_its_task(
    adopting: TwoBrokers, history: History
) -> None:
    varied(history, 4, 4)
    recut(adopting, history.committed[:6])
    held = Held(adopting.destination, ApiKey.FETCH)
    control = Watched()
    running = adopting.start(control=control)
    wait_until(lambda: any("to be compared with the source" in each for each in control.waited_for))
    control.request_stop()
    assert not running.result().complete
    held.release()
    assert not has_pair(adopting)
    mirrors_exactly(adopting, history)


def test_others_are_copied_while_a_copy_is_compared(adopting: TwoBrokers) -> None:
    compared, other = (varied(each, 4, 4) for each in adopting.topic("topic", 2))
    recut(adopting, compared.committed[:6])
    held = Held(adopting.destination, ApiKey.FETCH)
    running = adopting.start()
    held.wait_for_one()
    wait_until(lambda: adopting.copied(partition=1) == other.committed, 10.0)
    held.release()
    assert running.result().complete
    adopting.assert_exact(compared)
