"""A stuck partition delays no other of its task, and reports name its reason."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import fetch_offsets
from shoal.error_codes import ErrorCode
from shoal.errors import Stopped
from shoal.mirroring.control import WorkerControl
from shoal.mirroring.model.json_values import read_value
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.mirroring.model.reports import Assigned, Left, TaskReport
from shoal.mirroring.task.aligner import Aligner
from shoal.mirroring.task.fresh_metadata import Known
from shoal.mirroring.task.pair import Pair
from shoal.mirroring.task.partition import PartitionCopy
from shoal.mirroring.task.worker import Surroundings, Worker
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import FetchResponse
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from shoal_broker.call import Call
from shoal_broker.state import BrokerState
from tests.clocks import Ahead
from tests.copying import Uncontrolled
from tests.two_brokers import (
    Held,
    History,
    RunningTask,
    TwoBrokers,
    Watched,
    answers,
    second_node,
    wait_until,
)


@contextmanager
def led_by_a_second(first: Broker, partition: int) -> Iterator[Broker]:
    """Let a second broker of the cluster lead one of the partitions of each topic."""
    with second_node(first) as second:
        api = first.apis[ApiKey.METADATA]

        def handle(broker: BrokerState, call: Call, request: Any) -> Any:
            response = api.handle(first, call, request)
            here = response.brokers[0]
            response.brokers.append(
                type(here)(node_id=second.node_id, host=second.host, port=second.port, rack=None)
            )
            for topic in response.topics:
                for each in topic.partitions:
                    if each.partition_index == partition:
                        each.leader_id = second.node_id
            return response

        for broker in (first, second):
            broker.apis = {**broker.apis, ApiKey.METADATA: replace(api, handle=handle)}
        yield second


#: A wait for a stalled answer would take so long. A task has to end before.
STALL_S = 600.0


def open_ranges(partitions: int) -> list[CopyRange]:
    return [CopyRange("topic", number, "topic", 0, OPEN_END) for number in range(partitions)]


def is_copied(brokers: TwoBrokers, history: History, partition: int) -> bool:
    return len(brokers.copied("topic", partition)) == len(history.committed)


def end(running: RunningTask, control: Watched) -> None:
    control.request_stop()
    running.result()


def test_stalled_destination_leader_delays_only_its_own_partitions(brokers: TwoBrokers) -> None:
    brokers = brokers.with_timing(stalled_s=0.3)
    well, stuck = brokers.topic("topic", 2)
    with led_by_a_second(brokers.destination, 1) as second:
        control = Watched()
        stall = Held(second, ApiKey.PRODUCE)
        running = brokers.start(open_ranges(2), control)
        stuck.plain(1)
        stall.wait_for_one()
        for _ in range(20):  # while the other leader does not answer
            well.plain(1)
            wait_until(lambda: is_copied(brokers, well, 0))
        assert not brokers.copied("topic", 1)
        address = f"127.0.0.1:{second.port}"
        wait_until(lambda: f"the destination cluster's broker {address} to answer" in control.waited_for)
        stall.release()
        wait_until(lambda: is_copied(brokers, stuck, 1))
        wait_until(lambda: _last_word_of(control, 1) is None)
        end(running, control)
    assert brokers.copied("topic", 1) == stuck.committed


def _last_word_of(control: Watched, partition: int) -> str | None:
    words = [
        each["waiting_for"]
        for report in list(control.reports)
        for each in report["partitions"]
        if each["partition"] == partition
    ]
    return words[-1] if words else None


def test_stalled_source_leader_delays_only_its_own_partitions(brokers: TwoBrokers) -> None:
    brokers = brokers.with_timing(stalled_s=0.3)
    well, stuck = brokers.topic("topic", 2)
    with led_by_a_second(brokers.source, 1) as second:
        control = Watched()
        stall = Held(second, ApiKey.FETCH)
        running = brokers.start(open_ranges(2), control)
        stall.wait_for_one()
        stuck.plain(1)
        for _ in range(20):
            well.plain(1)
            wait_until(lambda: is_copied(brokers, well, 0))
        wait_until(lambda: any("source cluster's broker" in reason for reason in list(control.waited_for)))
        stall.release()
        wait_until(lambda: is_copied(brokers, stuck, 1))
        end(running, control)


@pytest.mark.parametrize("error", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR])
def test_partition_refused_for_long_is_copied_by_a_worker_of_its_own(
    brokers: TwoBrokers, error: ErrorCode
) -> None:
    well, stuck = brokers.topic("topic", 2)
    control = Watched()
    refused = brokers.destination.faults.add(ApiKey.PRODUCE, times=None, error=error, partition=1)
    running = brokers.start(open_ranges(2), control)
    stuck.plain(1)
    assert brokers.destination.faults.wait_for(refused, 2)
    for _ in range(30):
        well.plain(1)
        wait_until(lambda: is_copied(brokers, well, 0))
    assert brokers.destination.faults.wait_for(refused, 5)  # it is tried again and again
    assert not brokers.copied("topic", 1)
    wait_until(lambda: error.name in str(control.waited_for))
    brokers.destination.faults.clear()
    wait_until(lambda: is_copied(brokers, stuck, 1))
    wait_until(lambda: _last_word_of(control, 1) is None)
    end(running, control)
    assert brokers.copied("topic", 0) == well.committed
    assert brokers.copied("topic", 1) == stuck.committed


def test_slow_alignment_of_a_failed_partition_does_not_delay_the_others(
    brokers: TwoBrokers,
) -> None:
    """An alignment requests offsets from the leader, and a slow one costs its own partition time only."""
    well, stuck = brokers.topic("topic", 2)
    control = Watched()
    refused = brokers.destination.faults.add(
        ApiKey.PRODUCE, times=None, error=ErrorCode.NOT_ENOUGH_REPLICAS, partition=1
    )
    running = brokers.start(open_ranges(2), control)
    stuck.plain(1)
    assert brokers.destination.faults.wait_for(refused, 1)
    slow = Held(brokers.destination, ApiKey.OFFSET_FOR_LEADER_EPOCH, partition=1)
    slow.wait_for_one()
    for _ in range(10):
        well.plain(1)
        wait_until(lambda: is_copied(brokers, well, 0))
    slow.release()
    brokers.destination.faults.clear()
    wait_until(lambda: is_copied(brokers, stuck, 1))
    end(running, control)


def test_partition_refused_permanently_stops_and_the_others_continue(brokers: TwoBrokers) -> None:
    well, refused = brokers.topic("topic", 2)
    control = Watched()
    brokers.destination.faults.add(
        ApiKey.PRODUCE, times=None, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partition=1
    )
    running = brokers.start(open_ranges(2), control)
    refused.plain(1)
    for _ in range(10):
        well.plain(1)
        wait_until(lambda: is_copied(brokers, well, 0))
    wait_until(lambda: any(each["stopped"] for report in control.reports for each in report["partitions"]))
    control.request_stop()
    (stopped,) = running.result().stopped
    assert (stopped.topic, stopped.partition) == ("topic", 1)
    assert all(each in stopped.reason for each in ("--operation Write", "--topic topic"))


def test_end_of_a_task_does_not_wait_for_a_stalled_leader(brokers: TwoBrokers) -> None:
    brokers = brokers.with_timing(end_patience_s=0.3)
    well, stuck = brokers.topic("topic", 2)
    with led_by_a_second(brokers.destination, 1) as second:
        control = Watched()
        stall = second.faults.add(ApiKey.PRODUCE, times=None, delay_s=STALL_S)
        running = brokers.start(open_ranges(2), control)
        stuck.plain(1)
        well.plain(3)
        assert second.faults.wait_for(stall)
        wait_until(lambda: is_copied(brokers, well, 0))
        end(running, control)
        assert brokers.position("topic", 0).source_offset == 3
        assert brokers.position("topic", 1).source_offset == 0  # its outcome is not known


def test_end_of_a_task_does_not_wait_for_a_leader_that_stalls_at_connect(
    brokers: TwoBrokers,
) -> None:
    # The worker is not left behind, it ends.
    brokers = brokers.with_timing(end_patience_s=0.3, give_up_patience_s=30.0)
    well, _ = brokers.topic("topic", 2)
    with led_by_a_second(brokers.destination, 1) as second:
        control = Watched()
        stall = Held(second, ApiKey.API_VERSIONS)
        running = brokers.start(open_ranges(2), control)
        well.plain(3)
        stall.wait_for_one()
        wait_until(lambda: is_copied(brokers, well, 0))
        end(running, control)
        stall.release()


def test_worker_that_ends_after_its_task_gave_up_is_no_failure(brokers: TwoBrokers) -> None:
    hasty = brokers.with_timing(end_patience_s=-1.0, give_up_patience_s=-1.0)  # it waits for no worker
    for history in brokers.topic("topic", 4):
        history.plain(*[1] * 50)
    for _ in range(5):
        control = Watched()
        end(hasty.start(open_ranges(4), control), control)
    brokers.run()
    assert [len(brokers.copied("topic", number)) for number in range(4)] == [50] * 4


class InTrouble(Watched):
    """A task's control by which all partitions waited for a broker."""

    @property
    def assignment(self) -> Mapping[TopicPartition, Assigned]:  # type: ignore[override]
        waits_for = "a broker to answer"
        return {each.source: Assigned(1, each, waiting_for=waits_for) for each in open_ranges(2)}


def test_task_with_all_partitions_in_trouble_at_the_start_completes(brokers: TwoBrokers) -> None:
    """The second attempt of a task begins so if the first was killed while its partitions waited."""
    histories = brokers.topic("topic", 2)
    for history in histories:
        history.plain(2, 3)
    assert brokers.start(control=InTrouble()).result().complete
    for number, history in enumerate(histories):
        assert brokers.copied("topic", number) == history.committed


def test_failed_partition_in_trouble_is_aligned_again_if_its_pause_ends_before_the_others_copy(
    brokers: TwoBrokers,
) -> None:
    failed, well = brokers.topic("topic", 2)
    failed.plain(2)
    well.plain(2)
    brokers.destination.faults.add(ApiKey.LIST_OFFSETS, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, partition=0)
    # After the failure, the worker looks at the leaders: that takes longer than the pause.
    brokers.source.faults.add(ApiKey.METADATA, times=None, delay_s=0.05)
    control = InTrouble()
    running = brokers.start(open_ranges(2), control)
    wait_until(lambda: is_copied(brokers, well, 1))
    wait_until(lambda: is_copied(brokers, failed, 0))
    end(running, control)


def test_partition_whose_pause_ends_before_the_loop_of_another_begins_is_fetched_again(
    brokers: TwoBrokers,
) -> None:
    source, destination = brokers.source.faults, brokers.destination.faults
    paused, other = brokers.topic("topic", 2)
    control = InTrouble()
    slower = brokers.with_timing(first_retry_ms=200, longest_retry_ms=10_000)
    running = slower.start(open_ranges(2), control)
    for history, number in ((paused, 0), (other, 1)):
        history.plain(1)
        wait_until(lambda: is_copied(brokers, history, number))  # noqa: B023
    refused: list[FetchResponse] = []

    def refuse(response: FetchResponse) -> FetchResponse:
        """Refuse to send the partition three times. It stays aligned, and the third pause is the longest."""
        if len(refused) == 3 or not any(each.partition == 0 for each in response.partitions):
            return response
        refused.append(response)
        return replace(
            response,
            partitions=[
                replace(each, error_code=ErrorCode.UNKNOWN_SERVER_ERROR, record_set=memoryview(b""))
                if each.partition == 0
                else each
                for each in response.partitions
            ],
        )

    answers(brokers.source, ApiKey.FETCH, refuse, times=10_000)
    paused.plain(1)  # in the answer to the request that waits already
    wait_until(lambda: is_copied(brokers, paused, 0))
    paused.plain(1)
    wait_until(lambda: len(refused) == 3)
    destination.add(ApiKey.PRODUCE, error=ErrorCode.NOT_ENOUGH_REPLICAS, partition=1, times=1)
    # The worker asks for the leaders before it aligns the other: that takes longer than the third pause.
    source.add(ApiKey.METADATA, times=None, delay_s=1.0)
    other.plain(1)
    wait_until(lambda: is_copied(brokers, other, 1))
    wait_until(lambda: is_copied(brokers, paused, 0), 10.0)
    end(running, control)


def around_of(brokers: TwoBrokers, control: WorkerControl) -> Surroundings:
    known = Known(None, None)
    return Surroundings(
        brokers.settings, control, known, lambda report: None, lambda sender, copies, metadata: None
    )


def test_fenced_worker_neither_commits_nor_hands_over_partitions(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(2)
    uncontrolled, assigned = Uncontrolled(), Assigned(3, brokers.ranges()[0])
    uncontrolled.assignment = {assigned.range.source: assigned}
    fenced = Aligner(around_of(brokers, WorkerControl(uncontrolled)))
    copy = PartitionCopy(assigned, brokers.settings)
    fenced.admit([copy])
    fenced.fence()
    with pytest.raises(Stopped):
        fenced.run()
    assert fenced.leaving([copy]).leaves == {copy.source: Left(3, is_settled=False)}
    assert brokers.copied() == []
    with Cluster(brokers.settings.source) as cluster:
        assert not fetch_offsets(cluster, "mirror", [TopicPartition("topic", 0)])
    brokers.run()
    assert brokers.copied() == history.committed


class BlockedReports(Watched):
    """The first report of the aligner of partition 0 does not return until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.blocked, self.released = threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None

    def report(self, report: TaskReport) -> None:
        of_first = any(each.partition.partition == 0 for each in report.partitions)
        if of_first and threading.current_thread().name == "shoal-worker" and not self.blocked.is_set():
            self.thread = threading.current_thread()
            self.blocked.set()
            self.released.wait(60)
        super().report(report)


def test_fenced_worker_passes_no_partition_on_while_the_task_ends(
    brokers: TwoBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers: list[Worker] = []
    admit = Worker.admit

    def keep(worker: Worker, copies: Sequence[PartitionCopy]) -> bool:
        workers.append(worker)
        return admit(worker, copies)

    monkeypatch.setattr(Worker, "admit", keep)
    clock = Ahead()
    monkeypatch.setattr("shoal.mirroring.task.task.time", SimpleNamespace(monotonic=clock))
    brokers = brokers.with_timing(requested_commit_patience_s=STALL_S)
    _, other = brokers.topic("topic", 2)
    with led_by_a_second(brokers.destination, 1):
        control = BlockedReports()
        running = brokers.start(open_ranges(2), control)
        assert control.blocked.wait(60)
        other.plain(1)
        wait_until(lambda: is_copied(brokers, other, 1))
        last_commit = Held(brokers.source, ApiKey.OFFSET_COMMIT)
        control.request_stop()
        last_commit.wait_for_one()
        # A worker that takes no partitions any more waits for its last commit alone.
        wait_until(lambda: any(each.commits and each.held and not admit(each, []) for each in workers))

        def is_one_fenced() -> bool:
            clock.pass_by(STALL_S)
            return any(each.is_fenced for each in workers)

        wait_until(is_one_fenced)
        clock.pass_by(-1000 * STALL_S)  # the other one has time for what follows its commit
        control.released.set()
        assert control.thread is not None
        control.thread.join(60)
        wait_until(lambda: sum(each.name == "shoal-worker" for each in threading.enumerate()) == 1)
        last_commit.release()
        running.result()
    left = {
        each for report in control.reports for each, known in leaves_of(report).items() if known.is_settled
    }
    assert left == {TopicPartition("topic", 1)}


def waiting_copy(brokers: TwoBrokers) -> PartitionCopy:
    copy = PartitionCopy(Assigned(1, brokers.ranges()[0]), brokers.settings)
    copy.state.wait("a broker", 60.0)
    return copy


def test_partition_that_a_worker_has_not_begun_with_counts_as_its_own(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(2)
    around = around_of(brokers, WorkerControl(Uncontrolled()))
    pair = Pair(around, (0, 0), 65_536)
    copy = waiting_copy(brokers)
    pair.admit([copy])
    assert pair.held == [copy]


def begin_and_stall_commits(
    brokers: TwoBrokers, history: History, control: Watched
) -> tuple[TwoBrokers, RunningTask, Held]:
    """Copy one record. Then the coordinator answers no commit, and one is under way."""
    hasty = brokers.with_timing(commit_interval_s=0.01)
    running = hasty.start(open_ranges(1), control)
    history.plain(1)
    wait_until(lambda: is_copied(brokers, history, 0))
    stall = Held(brokers.source, ApiKey.OFFSET_COMMIT)
    history.plain(1)
    stall.wait_for_one()
    return hasty, running, stall


def test_coordinator_that_does_not_answer_delays_no_copy(brokers: TwoBrokers) -> None:
    (well,) = brokers.topic("topic", 1)
    control = Watched()
    _, running, stall = begin_and_stall_commits(brokers, well, control)
    for _ in range(20):
        well.plain(1)
        wait_until(lambda: is_copied(brokers, well, 0))
    stall.release()
    end(running, control)
    assert brokers.position("topic", 0).source_offset == 22


def test_coordinator_that_does_not_answer_holds_up_only_records_behind_a_new_gap(brokers: TwoBrokers) -> None:
    brokers = brokers.with_timing(plan_patience_s=0.05)
    dense, behind_gap = brokers.topic("topic", 2)
    dense.plain(1)
    behind_gap.plain(1)
    control = Watched()
    running = brokers.start(open_ranges(2), control)
    wait_until(lambda: is_copied(brokers, dense, 0) and is_copied(brokers, behind_gap, 1))
    stall = Held(brokers.source, ApiKey.OFFSET_COMMIT)
    behind_gap.gap(1).plain(1)
    stall.wait_for_one()
    for _ in range(20):
        dense.plain(1)
        wait_until(lambda: is_copied(brokers, dense, 0))
    assert len(brokers.copied("topic", 1)) == 1
    stall.release()
    wait_until(lambda: is_copied(brokers, behind_gap, 1))
    end(running, control)
    assert brokers.copied("topic", 1) == behind_gap.committed


def leaves_of(report: Mapping[str, Any]) -> Mapping[TopicPartition, Left]:
    leaves: Mapping[TopicPartition, Left] = read_value(Mapping[TopicPartition, Left], report["leaves"])
    return leaves


def test_pair_that_is_silent_for_long_gives_its_requests_up(brokers: TwoBrokers) -> None:
    """They may wait for one partition alone; the others continue without it."""
    histories = brokers.topic("topic", 2)
    for history in histories:
        history.plain(2)
    patient = replace(brokers.settings.destination, request_timeout_ms=600_000)
    brokers = brokers.with_settings(destination=patient)
    brokers = brokers.with_timing(stalled_s=0.1, isolate_s=0.3)
    stall = brokers.destination.faults.add(ApiKey.PRODUCE, drop="before", delay_s=600.0, times=1)
    control = Watched()
    running = brokers.start(open_ranges(2), control)
    assert brokers.destination.faults.wait_for(stall)
    for number, history in enumerate(histories):
        wait_until(lambda number=number, history=history: is_copied(brokers, history, number))  # type: ignore[misc]
    assert any("to answer" in each for each in control.waited_for)
    end(running, control)
