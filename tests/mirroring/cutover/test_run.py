"""The sequence of the gates, with a fake of both clusters and of the clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from shoal.client.config import ClientConfig
from shoal.client.groups import GroupType
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, Disconnected, ShoalError
from shoal.mirroring.cutover.certificate import CutCluster, CutLog
from shoal.mirroring.cutover.gates import Gate
from shoal.mirroring.cutover.observing import Observer
from shoal.mirroring.cutover.options import CutoverOptions
from shoal.mirroring.cutover.outcome import CutoverReport, GateEvent
from shoal.mirroring.cutover.partition_seen import PartitionSeen
from shoal.mirroring.cutover.run import CutoverRun
from shoal.mirroring.model.follow_options import GroupSelection
from shoal.mirroring.model.offset_map import Exactness
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.sync.report import Action, Direction, GroupOffset, GroupReport, GroupsReport
from shoal.net.address import Address
from shoal.topic_partition import TopicPartition
from shoal.verify import Aligned, Alignment, PartitionReport, VerifyProgress, VerifyReport
from tests.mirroring.cutover.positions import position_at

ORDERS = TopicPartition("orders", 0)
TIMEOUT_S = 150.0  # the ends stand still for 5 s


def equal(begin: int, end: int) -> VerifyReport:
    """Return the comparison of all offsets between two."""
    alignment = Alignment(Aligned.BY_ORIGIN, begin, begin, "")
    partition = PartitionReport(
        ORDERS, ORDERS, alignment=alignment, records=end - begin, batches=1, reached=(end, end)
    )
    return VerifyReport("g", (partition,), (), 0.0)


class Clusters(Observer):
    """Both clusters and their clock. A mirror copies, a group follows, and tests change what happens."""

    group = "shoal.A.B"

    def __init__(self) -> None:
        self.topics = {"orders": "orders"}
        self.now = 0.0
        self.end, self.position = 90, 90
        self.state = "Empty"
        self.action = Action.WRITE
        self.commits = 0
        self.is_without_groups = False
        self.problems: dict[float, Callable[[], object]] = {}
        self.drifting: list[str] = []
        self.errors: list[ShoalError] = []
        self.compared: list[VerifyReport] = []
        self.copy_end: int | None = None
        self.shown_there: int | None = None
        self.reading: Callable[[Callable[[VerifyProgress], object]], object] = lambda _: None

    def pause(self, seconds: float) -> None:
        self.now += seconds
        for at in [each for each in self.problems if each <= self.now]:
            self.problems.pop(at)()

    def holder(self) -> str | None:
        return "shoal-1"

    def partitions(self) -> list[PartitionSeen]:
        if self.errors:
            raise self.errors.pop()
        position = position_at(self.position, self.copy_end)
        return [PartitionSeen(ORDERS, ORDERS, 0, self.end, self.end, position)]

    def logs(self, seen: Sequence[PartitionSeen]) -> dict[TopicPartition, tuple[CutLog, CutLog]]:
        shown = self.end if self.shown_there is None else self.shown_there
        return {ORDERS: (CutLog("orders", None, 0, self.end, 0), CutLog("orders", None, 0, shown, 0))}

    def clusters(self) -> tuple[CutCluster, CutCluster]:
        return CutCluster("A", "a:1"), CutCluster("B", "b:1")

    def drift(self) -> list[str]:
        return self.drifting

    def remedy_of(self, error: ShoalError) -> str:
        return ""

    def groups(self) -> GroupsReport:
        if self.is_without_groups:
            return GroupsReport(Direction.FORWARD, [])
        row = GroupOffset("app", ORDERS, 7, self.action, "", ORDERS, 7, Exactness.EXACT)
        return GroupsReport(Direction.FORWARD, [GroupReport("app", GroupType.CLASSIC, self.state, [row])])

    def commit_groups(self) -> GroupsReport:
        self.commits += 1
        self.action = Action.WRITTEN
        report = self.groups()
        self.action = Action.UNCHANGED
        return report

    def verify(
        self, earlier: VerifyReport | None, on_progress: Callable[[VerifyProgress], object]
    ) -> VerifyReport:
        self.reading(on_progress)
        reached = earlier.partitions[0].reached if earlier else None
        self.compared.append(equal(reached[0] if reached else 0, self.position))
        return self.compared[-1]


@pytest.fixture
def clusters() -> Clusters:
    return Clusters()


def config(name: str) -> ClientConfig:
    return ClientConfig(name, (Address("localhost", 1),))


def cut(
    clusters: Clusters, tmp_path: Path, on_event: Callable[[GateEvent], object] = lambda _: None, **more: Any
) -> CutoverReport:
    mirror = MirrorOptions(config("source"), config("destination"), TopicSelection("orders"))
    given: dict[str, Any] = {"certificate": str(tmp_path / "c.json"), "timeout_s": TIMEOUT_S, **more}
    options = CutoverOptions(mirror, GroupSelection(".*"), **given)
    return CutoverRun(
        clusters, options, on_event=on_event, clock=lambda: clusters.now, pause=clusters.pause
    ).run()


def test_cutover_whose_expression_matches_no_group_warns(clusters: Clusters, tmp_path: Path) -> None:
    clusters.is_without_groups = True
    report = cut(clusters, tmp_path)
    assert (report.closed, len(report.warnings)) == (None, 1)
    assert all(each in report.warnings[0] for each in ("no consumer group", "'.*'"))


def test_cutover_verifies_after_the_cut_only_the_new_records(clusters: Clusters, tmp_path: Path) -> None:
    clusters.problems = {1.0: lambda: write(clusters, 100)}
    report = cut(clusters, tmp_path)
    assert report.certificate is not None
    assert [each.records for each in clusters.compared] == [90, 10]
    assert report.certificate.partitions[0].records == 100


def write(clusters: Clusters, end: int, copied: int | None = None) -> None:
    clusters.end, clusters.position = end, end if copied is None else copied


def produce_on(clusters: Clusters) -> None:
    clusters.problems = {float(at): lambda: write(clusters, clusters.end + 1) for at in range(1, 200)}


def test_quiet_counts_from_the_last_write_to_a_leader(clusters: Clusters, tmp_path: Path) -> None:
    clusters.problems = {3.0: lambda: write(clusters, 91)}
    events: list[GateEvent] = []
    report = cut(clusters, tmp_path, events.append)
    assert report.exit_code == 0
    quiet = [each for each in events if each.gate is Gate.QUIET]
    assert "orders-0" in quiet[-2].reasons[0]
    assert quiet[-1].elapsed_s == pytest.approx(8.0)


def test_producer_that_writes_during_the_commits_ends_the_cutover_with_a_count_of_the_commits(
    clusters: Clusters, tmp_path: Path
) -> None:
    commit = clusters.commit_groups

    def write_meanwhile() -> GroupsReport:
        write(clusters, 91)
        return commit()

    clusters.commit_groups = write_meanwhile  # type: ignore[method-assign]
    report = cut(clusters, tmp_path)
    assert report.closed is not None
    assert (report.closed.gate, report.committed) == (Gate.CERTIFICATE, 1)
    assert "1 offsets" in report.sentence
    assert list(tmp_path.iterdir()) == []


def interrupt() -> None:
    raise KeyboardInterrupt


def test_interruption_before_the_commits_changed_nothing(clusters: Clusters, tmp_path: Path) -> None:
    produce_on(clusters)
    clusters.problems[20.0] = interrupt
    report = cut(clusters, tmp_path)
    assert report.closed is not None
    assert (report.closed.gate, report.closed.is_timed_out, report.exit_code) == (Gate.QUIET, False, 1)
    assert list(report.closed.reasons) == ["interrupted"]
    assert (clusters.commits, report.unconfirmed) == (0, ())


def test_interruption_of_the_commits_names_the_offsets_that_may_be_there(
    clusters: Clusters, tmp_path: Path
) -> None:
    clusters.commit_groups = interrupt  # type: ignore[assignment,method-assign]
    report = cut(clusters, tmp_path)
    assert report.closed is not None
    assert list(report.closed.reasons) == ["interrupted"]
    assert [(each.group, each.translated) for each in report.unconfirmed] == [("app", 7)]
    assert list(tmp_path.iterdir()) == []


def test_commit_without_an_answer_is_named_although_a_later_one_is_refused(
    clusters: Clusters, tmp_path: Path
) -> None:
    outcomes = [Action.UNCONFIRMED, Action.ACTIVE]

    def commit() -> GroupsReport:
        clusters.action = outcomes.pop(0)
        report = clusters.groups()
        clusters.action = Action.WRITE if outcomes else Action.ACTIVE
        return report

    clusters.commit_groups = commit  # type: ignore[method-assign]
    report = cut(clusters, tmp_path)
    assert report.closed is not None
    assert report.closed.gate is Gate.GROUPS
    assert [(each.group, each.translated) for each in report.unconfirmed] == [("app", 7)]


def test_certificate_waits_until_consumers_see_the_whole_copy(clusters: Clusters, tmp_path: Path) -> None:
    clusters.copy_end, clusters.shown_there = 90, 80
    clusters.problems = {20.0: lambda: setattr(clusters, "shown_there", 90)}
    report = cut(clusters, tmp_path)
    assert report.exit_code == 0
    assert clusters.now >= 20.0


def test_page_that_cannot_be_written_is_a_warning(clusters: Clusters, tmp_path: Path) -> None:
    """The cut-over is done by then, and the certificate is on disk."""
    (tmp_path / "c.html").mkdir()
    report = cut(clusters, tmp_path)
    assert report.exit_code == 0
    (warning,) = report.warnings
    assert f"{tmp_path / 'c.html'}" in warning


def test_transient_error_is_a_reason_to_wait(clusters: Clusters, tmp_path: Path) -> None:
    clusters.errors = [Disconnected("a:1", "reset")]
    events: list[GateEvent] = []
    assert cut(clusters, tmp_path, events.append).exit_code == 0
    assert "reset" in events[1].reasons[0]


def test_error_that_time_cannot_heal_fails_the_gate(clusters: Clusters, tmp_path: Path) -> None:
    clusters.errors = [BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "the group")]
    report = cut(clusters, tmp_path)
    assert report.closed is not None
    assert (report.closed.gate, report.closed.is_timed_out) == (Gate.MIRROR, False)
    assert "GROUP_AUTHORIZATION_FAILED" in report.closed.reasons[0]
    assert clusters.now == 0.0


def progress(bytes_read: int) -> VerifyProgress:
    return VerifyProgress(1, 0, 0, bytes_read, 0, 0.5)


@pytest.mark.parametrize(("is_reading", "closed"), [(True, Gate.COMPLETE), (False, Gate.IN_STEP)])
def test_verification_may_take_long_before_the_cut_while_it_reads(
    clusters: Clusters, tmp_path: Path, is_reading: bool, closed: Gate
) -> None:
    def read(on_progress: Callable[[VerifyProgress], object]) -> None:
        for second in range(int(1.5 * TIMEOUT_S)):
            clusters.now += 1.0
            on_progress(progress(second if is_reading else 0))

    clusters.reading = read
    report = cut(clusters, tmp_path)
    assert report.closed is not None
    assert (report.closed.gate, report.closed.is_timed_out) == (closed, True)


@pytest.mark.parametrize(("errors", "is_timed_out"), [(1, False), (1000, True)])
def test_error_after_a_long_verification_times_out_only_if_it_lasts(
    clusters: Clusters, tmp_path: Path, errors: int, is_timed_out: bool
) -> None:
    seconds = iter(range(int(2 * TIMEOUT_S)))
    left = errors

    def read(on_progress: Callable[[VerifyProgress], object]) -> None:
        nonlocal left
        for second in seconds:
            clusters.now += 1.0
            on_progress(progress(second))
        if left:
            left -= 1
            raise Disconnected("a:1", "reset")

    clusters.reading = read
    report = cut(clusters, tmp_path)
    assert (report.closed is not None) is is_timed_out
    if report.closed is not None:
        assert (report.closed.gate, report.closed.is_timed_out) == (Gate.IN_STEP, True)
        assert 3 * TIMEOUT_S <= clusters.now < 4 * TIMEOUT_S


def test_offset_that_changes_during_the_commits_is_committed_again(
    clusters: Clusters, tmp_path: Path
) -> None:
    commit = clusters.commit_groups

    def reset_once() -> GroupsReport:
        report = commit()
        if clusters.commits == 1:
            clusters.action = Action.WRITE
        return report

    clusters.commit_groups = reset_once  # type: ignore[method-assign]
    assert cut(clusters, tmp_path).exit_code == 0
    assert clusters.commits == 2
