"""What ``shoal mirror`` does, from its options on, with its tasks in threads (``without_jvm``)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark.without_jvm import without_jvm
from two_brokers import History, TwoBrokers, content_of, wait_until

from shoal.mirroring import copies
from shoal.mirroring.incidents import IncidentKind
from shoal.mirroring.options import MirrorOptions
from shoal.mirroring.progress import Progress, Summary
from shoal.mirroring.topics import TopicSelection
from shoal.spark.job import mirror

pytestmark = pytest.mark.timeout(120)

CONTINUE = frozenset({IncidentKind.DESTINATION_LOSS})


class Mirrors:
    """Two clusters, and mirrors of one group between them."""

    def __init__(self, brokers: TwoBrokers, directory: Path) -> None:
        self.brokers = brokers
        self.notices: list[str] = []
        self.warnings: list[str] = []
        self._directory = directory

    def options(self, **changes: Any) -> MirrorOptions:
        settings = self.brokers.settings
        wanted = {
            "topics": TopicSelection("orders.*|idle"),
            "group": "mirror",
            "refresh_s": 1.0,
            "slice_s": 1.0,
            "checkpoint": str(self._directory),
        }
        return MirrorOptions(settings.source, settings.destination, **(wanted | changes))

    def once(self, **changes: Any) -> Summary:
        return mirror(
            self.options(once=True, **changes), on_warning=self.warnings.append, on_notice=self.notices.append
        )

    def copied(self, topic: str, partition: int = 0) -> int:
        found = self.brokers.destination.topics.get(topic)
        return len(content_of(found.logs[partition])) if found else -1

    def delete_copy(self, topic: str) -> None:
        self.brokers.destination.topics.delete(self.brokers.destination.topics.topic(topic))


class Service:
    """A mirror without an end, in a thread."""

    def __init__(self, mirrors: Mirrors, **changes: Any) -> None:
        self.progress: list[Progress] = []
        self._stop = threading.Event()
        self._summary: Summary | None = None
        self._options = mirrors.options(**changes)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._summary = mirror(self._options, self.progress.append, stop=self._stop)

    @property
    def now(self) -> Progress | None:
        return self.progress[-1] if self.progress else None

    def end(self) -> Summary:
        self._stop.set()
        self._thread.join(60)
        assert self._summary is not None
        return self._summary


@pytest.fixture
def mirrors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirrors]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(copies, "_CONFIRMATION_S", 0.1)
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


# A copy that was deleted while nothing new comes


@pytest.mark.usefixtures("idle")
def test_once_stops_for_a_copy_that_was_deleted_and_does_not_create_it(mirrors: Mirrors) -> None:
    mirrors.delete_copy("idle")
    History(mirrors.brokers.source.log("orders")).plain(5)
    summary = mirrors.once()
    assert list(summary.stopped) == ["idle-0"]
    assert "was deleted since it was mirrored" in summary.stopped["idle-0"]
    assert [(each.kind, each.continued) for each in summary.incidents] == [("destination-loss", False)]
    assert mirrors.copied("idle") == -1
    assert mirrors.copied("orders") == 7


@pytest.mark.usefixtures("idle")
def test_once_stops_for_a_copy_that_was_deleted_and_created_again(mirrors: Mirrors) -> None:
    mirrors.delete_copy("idle")
    mirrors.brokers.destination.create_topic("idle", 1)
    summary = mirrors.once()
    assert "was deleted and created again since it was mirrored" in summary.stopped["idle-0"]


@pytest.mark.usefixtures("idle")
def test_once_where_all_copies_were_deleted_copies_nothing(mirrors: Mirrors) -> None:
    mirrors.delete_copy("idle")
    mirrors.delete_copy("orders")
    mirrors.brokers.source.create_topic("stranger", 1)
    summary = mirrors.once()
    assert sorted(summary.stopped) == ["idle-0", "orders-0"]
    assert mirrors.brokers.destination.topics.get("stranger") is None


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("is_back", [False, True])
def test_once_mirrors_a_deleted_copy_again_if_the_policy_says_so(mirrors: Mirrors, is_back: bool) -> None:
    mirrors.delete_copy("idle")
    if is_back:
        mirrors.brokers.destination.create_topic("idle", 1)
    summary = mirrors.once(continue_on=CONTINUE)
    assert (summary.stopped, summary.records) == ({}, 7)
    assert [(each.kind, each.continued) for each in summary.incidents] == [("destination-loss", True)]
    assert mirrors.copied("idle") == 7
    assert mirrors.once().incidents == ()


@pytest.mark.usefixtures("idle")
def test_a_running_mirror_stops_for_a_copy_that_is_deleted(mirrors: Mirrors) -> None:
    service = Service(mirrors)
    wait_until(lambda: service.now is not None and service.now.done == 2, 30)
    mirrors.delete_copy("idle")
    wait_until(lambda: service.now is not None and list(service.now.stopped) == ["idle-0"], 30)
    History(mirrors.brokers.source.log("orders")).plain(5)  # the others go on
    wait_until(lambda: mirrors.copied("orders") == 7, 30)
    assert "was deleted since it was mirrored" in service.end().stopped["idle-0"]
    assert mirrors.copied("idle") == -1


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("is_back", [False, True])
def test_a_running_mirror_mirrors_a_copy_again_that_is_deleted_if_the_policy_says_so(
    mirrors: Mirrors, is_back: bool
) -> None:
    service = Service(mirrors, continue_on=CONTINUE)
    wait_until(lambda: service.now is not None and service.now.done == 2, 30)
    mirrors.delete_copy("idle")
    if is_back:
        mirrors.brokers.destination.create_topic("idle", 1)
    wait_until(lambda: mirrors.copied("idle") == 7, 30)
    wait_until(lambda: service.now is not None and bool(service.now.incidents), 30)
    summary = service.end()
    assert summary.stopped == {}
    assert [(each.kind, each.continued) for each in summary.incidents] == [("destination-loss", True)]


@pytest.mark.usefixtures("idle")
def test_a_running_mirror_stops_for_a_copy_that_is_created_again(mirrors: Mirrors) -> None:
    service = Service(mirrors)
    wait_until(lambda: service.now is not None and service.now.done == 2, 30)
    mirrors.delete_copy("idle")
    mirrors.brokers.destination.create_topic("idle", 1)
    wait_until(lambda: service.now is not None and list(service.now.stopped) == ["idle-0"], 30)
    assert "was deleted and created again since it was mirrored" in service.end().stopped["idle-0"]
