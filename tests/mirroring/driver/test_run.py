"""``shoal mirror``, from its options on, with its tasks in threads (``without_jvm``)."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.client.offsets import LATEST
from shoal.error_codes import ErrorCode
from shoal.errors import ConfigError, ShoalError, Stopped
from shoal.mirroring.driver.group_lock import GroupLock, MirrorIdentity
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.progress import Phase, Progress, Summary
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.model.window import Start
from shoal.protocol.apis import ApiKey
from shoal.spark import engine
from shoal.spark.api import mirror
from shoal.spark.launch.jvm import Abort
from tests.spark.without_jvm import Context, without_jvm
from tests.world.clusters import QUICK, TwoBrokers
from tests.world.contents import content_of
from tests.world.history import History
from tests.world.waiting import InThread, wait_until

CONTINUE = frozenset({IncidentKind.DESTINATION_LOSS})
OFTEN = replace(QUICK, heartbeat_interval_s=0.05, shortest_refresh_s=0.1)


class Mirrors:
    """Two clusters, and mirrors of one group between them."""

    def __init__(self, brokers: TwoBrokers, directory: Path) -> None:
        self.brokers = brokers
        self.notices: list[str] = []
        self.warnings: list[str] = []
        self._directory = directory

    def options(self, **changes: Any) -> MirrorOptions:
        settings = self.brokers.settings
        wanted: dict[str, Any] = {
            "topics": TopicSelection("orders.*|idle"),
            "group": "mirror",
            "refresh_s": 0.1,
            "checkpoint": str(self._directory),
            "timing": replace(QUICK, places_look_s=1.0, deletion_confirmed_s=0.1, shortest_refresh_s=0.1),
        }
        return replace(
            MirrorOptions(settings.source, settings.destination, wanted.pop("topics")), **(wanted | changes)
        )

    def once(self, **changes: Any) -> Summary:
        return mirror(
            self.options(once=True, **changes), on_warning=self.warnings.append, on_notice=self.notices.append
        )

    def copied(self, topic: str, partition: int = 0) -> int:
        found = self.brokers.destination.topics.get(topic)
        return len(content_of(found.logs[partition])) if found else -1

    def committed(self, topic: str) -> int:
        """Return the committed offset of partition 0; -1 without one."""
        offsets = self.brokers.source.groups.read("mirror", lambda group: dict(group.offsets))
        return offsets[topic, 0].offset if (topic, 0) in offsets else -1

    def successor(self) -> GroupLock:
        """Return the group's lock of another process that begins as the same mirror."""
        name = (self._directory / "mirror-id").read_text(encoding="ascii").strip()
        return GroupLock(self.brokers.settings.source, "mirror", name, lambda *renewed: None, OFTEN)

    def delete_copy(self, topic: str) -> None:
        self.brokers.destination.topics.delete(self.brokers.destination.topics.topic(topic))


class Service(InThread[Summary]):
    """A mirror without an end, in a thread."""

    def __init__(self, mirrors: Mirrors, **changes: Any) -> None:
        self.progress: list[Progress] = []
        self._stop = threading.Event()
        options = mirrors.options(**changes)
        super().__init__(lambda: mirror(options, on_progress=self.progress.append, stop=self._stop))

    @property
    def now(self) -> Progress | None:
        return self.progress[-1] if self.progress else None

    def end(self) -> Summary:
        self._stop.set()
        return self.result(60)

    def failure(self) -> ShoalError:
        """Return the error with which it ends by itself."""
        with pytest.raises(ShoalError) as raised:
            self.result(60)
        return raised.value


@pytest.fixture
def mirrors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirrors]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with without_jvm(monkeypatch), TwoBrokers.started() as brokers:
        yield Mirrors(brokers, tmp_path / "checkpoint")


@pytest.fixture
def idle(mirrors: Mirrors) -> History:
    """A topic of which all is mirrored, beside another."""
    (history,) = mirrors.brokers.topic("idle")
    history.plain(3, 4)
    mirrors.brokers.topic("orders")[0].plain(2)
    summary = mirrors.once()
    assert (summary.records, summary.stopped) == (9, {})
    return history


# The report


def test_summary_names_no_report_that_could_not_be_written(mirrors: Mirrors, tmp_path: Path) -> None:
    mirrors.brokers.topic("orders")[0].plain(2)
    room = tmp_path / "room"
    room.mkdir()
    summary = mirror(
        mirrors.options(once=True, report=str(room / "report.html")),
        on_run=lambda *_: shutil.rmtree(room),
        on_warning=mirrors.warnings.append,
    )
    assert (summary.records, summary.report) == (2, None)
    (warning,) = mirrors.warnings
    assert "report.html cannot be written" in warning


# The place in the group


def test_mirror_whose_place_is_taken_commits_nothing_more_and_ends_without_taking_it_back(
    mirrors: Mirrors,
) -> None:
    (history,) = mirrors.brokers.topic("orders")
    history.plain(2)
    service = Service(mirrors, timing=replace(OFTEN, commit_interval_s=0.2))
    wait_until(lambda: mirrors.committed("orders") == 2, 30)
    faults = mirrors.brokers.source.faults
    silence = faults.add(ApiKey.HEARTBEAT, drop="before", times=None)
    assert faults.wait_for(silence)
    with mirrors.successor() as successor:
        successor.acquire([], patience_s=20.0)
        commits = faults.add(ApiKey.OFFSET_COMMIT, times=None)
        history.plain(3)
        # This commit has no instance id. On UNKNOWN_MEMBER_ID no task ends, and the mirror does not join.
        assert faults.wait_for(commits, timeout_s=30.0)
        assert mirrors.committed("orders") == 2
        faults.clear()
        assert "FENCED_INSTANCE_ID" in str(service.failure())
        later = faults.add(ApiKey.HEARTBEAT, times=None)
        assert faults.wait_for(later, hits=2, timeout_s=30.0)
        assert successor.failure is None
        assert mirrors.committed("orders") == 2


# The start of the engine, in a thread while the group is joined


def test_failed_start_of_the_engine_ends_the_mirror_and_leaves_the_group(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrors.brokers.topic("orders")[0].plain(2)
    with monkeypatch.context() as patched:

        def fail(*_: object, **__: object) -> None:
            raise ConfigError("no Java")

        patched.setattr(engine, "spark_context", fail)
        with pytest.raises(ConfigError, match="no Java"):
            mirrors.once()
    assert mirrors.copied("orders") == 0
    assert mirrors.once().records == 2


def test_stop_ends_a_start_of_the_engine_at_once(mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch) -> None:
    mirrors.brokers.topic("orders")[0].plain(2)
    begun = threading.Event()

    def start(*_: object, abort: Abort, **__: object) -> None:
        begun.set()
        wait_until(lambda: abort.requested)
        raise Stopped("aborted")

    monkeypatch.setattr(engine, "spark_context", start)
    service = Service(mirrors)
    assert begun.wait(60)
    wait_until(lambda: service.now is not None and service.now.phase == Phase.STARTING_SPARK.value)
    summary = service.end()
    assert all(each in summary.ended for each in ("the calling program", "before anything"))
    assert (summary.exit_code, mirrors.copied("orders")) == (0, 0)


def test_engine_that_starts_just_before_a_stop_is_stopped(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start is behind the last point where an abort ends it."""
    mirrors.brokers.topic("orders")[0].plain(2)
    begun = threading.Event()
    stopped = threading.Event()
    monkeypatch.setattr(Context, "stop", lambda _: stopped.set())

    def start(*_: object, abort: Abort, **__: object) -> Context:
        begun.set()
        wait_until(lambda: abort.requested)
        return Context(2)

    monkeypatch.setattr(engine, "spark_context", start)
    service = Service(mirrors)
    assert begun.wait(60)
    service.end()
    assert stopped.is_set()


def test_directory_of_another_mirror_is_refused_before_topics_are_created(
    mirrors: Mirrors, tmp_path: Path
) -> None:
    mirrors.brokers.topic("orders")[0].plain(2)
    mirrors.delete_copy("orders")
    other = MirrorIdentity(tmp_path / "checkpoint")
    with pytest.raises(ConfigError, match=r"another.*machine"):
        mirrors.once()
    assert mirrors.copied("orders") == -1
    other.release()
    assert mirrors.once().records == 2


def test_refused_topic_ends_the_start_of_the_engine(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrors.brokers.source.create_topic("orders", 2)
    aborted = threading.Event()

    def start(*_: object, abort: Abort, **__: object) -> None:
        wait_until(lambda: abort.requested)
        aborted.set()
        raise Stopped("aborted")

    monkeypatch.setattr(engine, "spark_context", start)
    with pytest.raises(ConfigError):
        mirrors.once(replication_factor=7)
    assert aborted.is_set()


# A copy that was deleted while nothing new comes


@pytest.mark.usefixtures("idle")
def test_once_with_all_copies_deleted_copies_nothing(mirrors: Mirrors) -> None:
    mirrors.delete_copy("idle")
    mirrors.delete_copy("orders")
    mirrors.brokers.source.create_topic("stranger", 1)
    summary = mirrors.once()
    assert sorted(summary.stopped) == ["idle-0", "orders-0"]
    assert mirrors.brokers.destination.topics.get("stranger") is None


@pytest.mark.usefixtures("idle")
def test_running_mirror_stops_for_a_deleted_copy(mirrors: Mirrors) -> None:
    service = Service(mirrors)
    wait_until(lambda: service.now is not None and service.now.states["up to date"] == 2, 30)
    mirrors.delete_copy("idle")
    wait_until(lambda: service.now is not None and list(service.now.stopped) == ["idle-0"], 30)
    History(mirrors.brokers.source.log("orders")).plain(5)  # the others go on
    wait_until(lambda: mirrors.copied("orders") == 7, 30)
    assert [each.kind for each in service.end().incidents] == ["destination-loss"]
    assert mirrors.copied("idle") == -1


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("is_back", [False, True])
def test_running_mirror_with_policy_continue_mirrors_a_deleted_copy_again(
    mirrors: Mirrors, is_back: bool
) -> None:
    service = Service(mirrors, continue_after=CONTINUE)
    wait_until(lambda: service.now is not None and service.now.states["up to date"] == 2, 30)
    mirrors.delete_copy("idle")
    if is_back:
        mirrors.brokers.destination.create_topic("idle", 1)
    wait_until(lambda: mirrors.copied("idle") == 7, 30)
    wait_until(lambda: service.now is not None and bool(service.now.incidents), 30)
    summary = service.end()
    assert summary.stopped == {}
    assert [(each.kind, each.continued) for each in summary.incidents] == [("destination-loss", True)]


# --start latest


LATEST_START: dict[str, Any] = {"start": Start(LATEST), "topics": TopicSelection("orders.*")}


def grow(mirrors: Mirrors, topic: str, partitions: int) -> History:
    """Add partitions to a source topic; return the history of the last."""
    topics = mirrors.brokers.source.topics
    topics.grow(topics.topic(topic), partitions)
    return History(topics.topic(topic).logs[-1])


def create(mirrors: Mirrors, topic: str) -> History:
    mirrors.brokers.source.create_topic(topic, 1)
    return History(mirrors.brokers.source.log(topic))


@pytest.fixture
def from_now_on(mirrors: Mirrors) -> Mirrors:
    """A first start with ``--start latest`` behind six records, and two records since."""
    history = create(mirrors, "orders").plain(3, 3)
    assert mirrors.once(**LATEST_START).records == 0
    (told,) = mirrors.notices
    assert all(each in told for each in ("'mirror'", "start=latest", "1 partitions"))
    mirrors.notices.clear()
    history.plain(2)
    return mirrors


def test_records_between_runs_are_mirrored_from_their_beginning(from_now_on: Mirrors) -> None:
    grow(from_now_on, "orders", 2).plain(5)
    create(from_now_on, "orders-new").plain(4)
    assert from_now_on.once(**LATEST_START).records == 2 + 5 + 4
    assert [from_now_on.copied("orders"), from_now_on.copied("orders", 1)] == [2, 5]
    assert from_now_on.copied("orders-new") == 4
    (told,) = from_now_on.notices
    assert told.startswith("orders-1, orders-new-0: newer")
    from_now_on.notices.clear()
    assert from_now_on.once(**LATEST_START).records == 0
    assert from_now_on.notices == []


def test_topic_not_selected_at_the_first_start_begins_at_its_end(mirrors: Mirrors) -> None:
    create(mirrors, "orders").plain(3)
    old = create(mirrors, "payments").plain(4)
    mirrors.once(**LATEST_START)
    both = {**LATEST_START, "topics": TopicSelection("orders|payments.*")}
    mirrors.brokers.source.create_topic("payments-new", 1)
    History(mirrors.brokers.source.log("payments-new"), int(time.time() * 1000)).plain(2)
    mirrors.notices.clear()
    assert mirrors.once(**both).records == 2  # the new one is newer than the first start
    assert any(each.startswith("payments-0: ") for each in mirrors.notices)
    old.plain(1)
    assert mirrors.once(**both).records == 1
    assert (mirrors.copied("payments"), mirrors.copied("payments-new")) == (1, 2)


def test_group_of_an_older_version_continues(from_now_on: Mirrors) -> None:
    """Its positions have no first start: unknown partitions are copied, not skipped."""
    from_now_on.once(**LATEST_START)
    from_now_on.brokers.commit(replace(from_now_on.brokers.position("orders"), first_start=None), "orders")
    create(from_now_on, "orders-new").plain(4)
    assert from_now_on.once(**LATEST_START).records == 4


def test_newer_topic_with_silent_leader_at_the_start_is_not_skipped(from_now_on: Mirrors) -> None:
    create(from_now_on, "orders-new").plain(4)
    faults = from_now_on.brokers.source.faults
    silent = faults.add(
        ApiKey.LIST_OFFSETS, times=None, topic="orders-new", error=ErrorCode.LEADER_NOT_AVAILABLE
    )
    service = Service(from_now_on, **LATEST_START)
    wait_until(lambda: service.now is not None and "orders-new-0" in service.now.waiting, 30)
    faults.remove(silent)
    wait_until(lambda: from_now_on.copied("orders-new") == 4, 30)
    assert service.end().records == 2 + 4


def test_running_mirror_begins_later_topics_at_their_beginning(from_now_on: Mirrors) -> None:
    create(from_now_on, "orders-new").plain(4)
    service = Service(from_now_on, **LATEST_START)
    wait_until(lambda: from_now_on.copied("orders-new") == 4, 30)
    create(from_now_on, "orders-newer").plain(3)
    wait_until(lambda: from_now_on.copied("orders-newer") == 3, 30)
    assert service.end().records == 2 + 4 + 3
