"""Options of mirrors from and to an archive, and the topics that they prepare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.archive.description import DamagedObject
from shoal.cli import main
from shoal.client.cluster import Cluster
from shoal.client.offsets import LATEST, list_offsets
from shoal.errors import ConfigError
from shoal.mirroring.cutover.options import CutoverOptions
from shoal.mirroring.driver.dry_run import dry_run
from shoal.mirroring.model.follow_options import GroupSelection
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.prepare.inspect import inspect_topics
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.archive.archives import TOPIC_ID, described, new_archive


def options_of(source: str, destination: str, topics: str, **given: Any) -> MirrorOptions:
    """Give a mirror its ends as texts."""
    make: Any = MirrorOptions
    made: MirrorOptions = make(source, destination, topics, **given)
    return made


@pytest.mark.parametrize(
    ("ends", "given", "refused"),
    [
        (("a:9092", "/archive"), {"rebatch": "64k"}, "--rebatch.*--to"),
        (("a:9092", "/archive"), {"adopt": True}, "--adopt.*--to"),
        (("a:9092", "/archive"), {"sync": "configs"}, "--sync.*--to"),
        (("a:9092", "/archive"), {"keep_append_time": True}, "keep_append_time.*--to"),
        (("/archive", "a:9092"), {"sync": "acls"}, "--sync acls.*--from"),
        (("/archive", "a:9092"), {"sync": "configs,all-acls"}, "--sync acls.*--from"),
        (("/a", "/b"), {}, "--from.*--to.*tools of its store"),
    ],
)
def test_options_refuse_settings_that_an_archive_cannot_have(
    ends: tuple[str, str], given: dict[str, Any], refused: str
) -> None:
    with pytest.raises(ConfigError, match=refused):
        options_of(*ends, "orders", **given)


def test_cutover_and_gateway_need_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    for ends in ("/archive", "b:9092"), ("a:9092", "/archive"):
        with pytest.raises(ConfigError, match=r"a cut-over has no meaning .* directory"):
            CutoverOptions(options_of(*ends, "orders"), GroupSelection("g"), certificate="x")
    assert main(["gateway", "--upstream", "/archive"]) == 2
    assert "a gateway has no meaning if --upstream is a directory" in capsys.readouterr().err


def inspected(options: MirrorOptions) -> str:
    with Cluster(options.source) as source, Cluster(options.destination) as destination:
        return inspect_topics(options, source, destination, creates=True).group


def test_group_of_an_archive_has_its_id(tmp_path: Path) -> None:
    with Broker(cluster_id="a") as broker:
        broker.create_topic("orders", 2)
        options = options_of(broker.bootstrap, str(tmp_path / "new"), "orders")
        group = inspected(options)
        assert group == inspected(options)
        archive = new_archive(tmp_path / "new")
        assert group == f"shoal.a.{archive.id}"


def test_group_of_the_user_is_refused_for_an_archive(tmp_path: Path) -> None:
    with Broker(cluster_id="a") as broker:
        broker.create_topic("orders", 2)
        with pytest.raises(ConfigError, match="mine"):
            inspected(options_of(broker.bootstrap, str(tmp_path), "orders", group="mine"))


def test_names_that_differ_in_case_alone_are_refused_in_a_local_directory(tmp_path: Path) -> None:
    with Broker(cluster_id="a") as broker:
        broker.create_topic("orders", 1)
        broker.create_topic("Orders", 1)
        with pytest.raises(ConfigError, match="case"):
            inspected(options_of(broker.bootstrap, str(tmp_path), "orders,Orders"))


def test_topic_that_the_archive_has_damaged_is_left_out_of_a_restore(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "archive")
    archive.describe(described(name="sales"))
    (file,) = (tmp_path / "archive" / "topics" / "orders" / str(TOPIC_ID)).iterdir()
    file.write_text("{}")
    with Broker(cluster_id="b") as broker:
        options = options_of(str(tmp_path / "archive"), broker.bootstrap, "orders,sales", once=True)
        with Cluster(options.source) as source, Cluster(options.destination) as destination:
            prepared = inspect_topics(options, source, destination, creates=True)
            assert list(prepared.topics) == ["sales"]
            assert list(prepared.unreadable) == ["orders"]
            answer = list_offsets(source, {TopicPartition("orders", 0): LATEST})
    assert isinstance(answer[TopicPartition("orders", 0)], DamagedObject)


def test_topic_that_the_archive_has_damaged_is_left_out_of_a_later_run(tmp_path: Path) -> None:
    with Broker(cluster_id="a") as broker:
        for name in ("orders", "sales"):
            broker.create_topic(name, 1)
        options = options_of(broker.bootstrap, str(tmp_path), "orders,sales")
        inspected(options)
        (file,) = tmp_path.glob("topics/orders/*/topic.*.json")
        file.write_text("{}")
        with Cluster(options.source) as source, Cluster(options.destination) as destination:
            prepared = inspect_topics(options, source, destination, creates=True)
    assert list(prepared.topics) == ["sales"]
    assert isinstance(prepared.unreadable["orders"], DamagedObject)


def test_dry_run_of_a_restore_lists_the_archived_partitions(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "archive", partitions=2)
    with Broker(cluster_id="b") as broker:
        warnings: list[str] = []
        restore = options_of(str(tmp_path / "archive"), broker.bootstrap, "orders", once=True)
        found = dry_run(restore, on_warning=warnings.append)
    assert warnings == []
    assert found.refusal is None
    assert found.group == f"shoal.{archive.id}.b"
    assert [len(each.partitions) for each in found.topics] == [2]
