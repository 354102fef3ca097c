"""`shoal mirror` to a directory and from it: commands in, records, offsets and files out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.client.admin import describe_topic_configs
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from tests.integration.shared_spark import shoal
from tests.world.clusters import TwoBrokers
from tests.world.contents import content_of
from tests.world.history import ABORT, History
from tests.world.offsets import commit, committed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def test_topic_is_archived_and_restored_by_another_name_with_its_consumers(
    brokers: TwoBrokers, tmp_path: Path
) -> None:
    source, destination = brokers.source, brokers.destination
    source.create_topic("orders", 1, config={"retention.ms": "123456"})
    history = History(source.topics.topic("orders").logs[0])
    history.plain(3).transaction(2, ends=ABORT).plain(4)
    commit(source, "billing", 7, "orders")
    archive = str(tmp_path / "archive")
    selected = ["--topics", "orders", "--groups", ".*", "--once"]
    done = shoal("mirror", "--from", source.bootstrap, "--to", archive, *selected, state=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "archive/runs").iterdir()
    (extent,) = json.loads(run.read_bytes())["partitions"]
    assert (extent["topic"], extent["start_offset"], extent["objects"]) == ("orders", 0, 1)
    assert extent["next_offset"] == history.next_offset
    destination.create_topic("copy", 1)
    options = [*selected, "--rename", "orders=copy", "--sync", "configs"]
    done = shoal("mirror", "--from", archive, "--to", destination.bootstrap, *options, state=tmp_path)
    assert done.returncode == 0, done.stderr
    assert content_of(destination.log("copy", 0)) == history.committed
    found = committed(destination, "billing", "copy")
    assert found is not None
    assert found.offset == 4
    with Cluster(ClientConfig.given("broker", destination.bootstrap, None)) as cluster:
        assert describe_topic_configs(cluster, ["copy"])["copy"]["retention.ms"].value == "123456"
    ends = ["--from", archive, "--to", destination.bootstrap, "--rename", "orders=copy"]
    done = shoal("verify", *ends, "--topics", "orders", state=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    commit(destination, "billing", 0, "copy")
    done = shoal("groups", *ends, "--topics", "orders", "--groups", "billing", "--json", state=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"exactness": "exact"' in done.stdout


def test_second_restore_beside_the_first_has_a_position_of_its_own(
    brokers: TwoBrokers, tmp_path: Path
) -> None:
    """Both positions are in one group, under the names of the copies."""
    source, destination = brokers.source, brokers.destination
    source.create_topic("orders", 1)
    history = History(source.topics.topic("orders").logs[0])
    history.plain(3).plain(4)
    archive = str(tmp_path / "archive")
    selected = ["--topics", "orders", "--once"]
    done = shoal("mirror", "--from", source.bootstrap, "--to", archive, *selected, state=tmp_path)
    assert done.returncode == 0, done.stderr
    ends = ["--from", archive, "--to", destination.bootstrap, *selected]
    for options in ([], ["--rename", "orders=part", "--until", "2"]):
        done = shoal("mirror", *ends, *options, state=tmp_path)
        assert done.returncode == 0, done.stderr
    assert content_of(destination.log("orders", 0)) == history.committed
    assert content_of(destination.log("part", 0)) == history.committed[:2]
