"""``shoal mirror --from-certificate``, from its options on, with its tasks in threads (``without_jvm``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import ConfigError
from shoal.mirroring.cutover.certificate import CutCluster
from shoal.mirroring.model.progress import Summary
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.spark.api import mirror
from shoal.topic_partition import TopicPartition
from tests.spark.without_jvm import without_jvm
from tests.world.contents import content_of
from tests.world.history import History
from tests.world.way_back import WayBack, started_way_back


class Going:
    """Runs of a mirror that goes back."""

    def __init__(self, way_back: WayBack, directory: Path) -> None:
        self.way_back = way_back
        self.notices: list[str] = []
        self.warnings: list[str] = []
        self._directory = directory
        self.file = directory / "certificate.json"

    def once(self, **more: Any) -> Summary:
        file = self.way_back.write(self.file)
        options = self.way_back.options(
            **{"once": True, "from_certificate": file, "checkpoint": str(self._directory / "state"), **more}
        )
        return mirror(options, on_warning=self.warnings.append, on_notice=self.notices.append)


@pytest.fixture
def going(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Going]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with without_jvm(monkeypatch), started_way_back("shoal.source.destination") as way_back:
        yield Going(way_back, tmp_path)


def test_mirror_from_a_certificate_copies_the_records_behind_the_cut_once(going: Going) -> None:
    brokers = going.way_back.two
    before = content_of(brokers.destination.log("topic"))
    written = History(brokers.source.log("topic")).plain(2, 5)
    summary = going.once(group=None)
    assert (summary.records, summary.stopped) == (7, {})
    assert going.notices[0].startswith("topic-0: mirrored back")
    assert content_of(brokers.destination.log("topic")) == before + written.committed
    assert going.once(group=None).records == 0
    assert len([each for each in going.notices if "mirrored back" in each]) == 1


def test_mirror_from_a_certificate_expects_only_the_records_behind_the_cut(
    going: Going, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[int] = []
    expect = Metrics.expect

    def watch(
        metrics: Metrics, next_offsets: Mapping[TopicPartition, int], *more: Mapping[TopicPartition, int]
    ) -> None:
        starts.extend(next_offsets.values())
        expect(metrics, next_offsets, *more)

    monkeypatch.setattr(Metrics, "expect", watch)
    History(going.way_back.two.source.log("topic")).plain(2, 5)
    going.once()
    assert starts == [8]


def test_mirror_from_the_certificate_of_another_cut_creates_no_topic(going: Going) -> None:
    brokers = going.way_back.two
    brokers.source.create_topic("new", 1)
    certificate = going.way_back.certificate
    going.way_back.certificate = replace(certificate, source=CutCluster("other", "other:9092"))
    with pytest.raises(ConfigError, match=r"another.*cluster"):
        going.once(topics="topic|new")
    assert brokers.destination.topics.get("new") is None
    going.way_back.certificate = certificate
    assert going.once(topics="topic|new").stopped == {}
    assert brokers.destination.topics.get("new") is not None


def test_mirror_from_a_certificate_does_not_create_a_topic_again_that_the_old_source_lost(
    going: Going,
) -> None:
    brokers = going.way_back.two
    brokers.destination.topics.delete(brokers.destination.topics.topic("topic"))
    with pytest.raises(ConfigError, match="topic-0"):
        going.once()
    assert brokers.destination.topics.get("topic") is None
