"""``shoal mirror --dry-run`` between embedded brokers: everything is reported, nothing is changed."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from rig.shoal import SHOAL, Shoal
from shoal.archive.directory import Archive
from shoal.cli import main
from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets
from shoal.client.config import ClientConfig
from shoal.client.coordinator import MemberId
from shoal.error_codes import ErrorCode
from shoal.mirroring.model.copy_options import copy_rules
from shoal.mirroring.model.offset_map import OffsetMap
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity
from shoal.mirroring.model.topics import TopicSelection
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.group_member import GroupMember
from tests.snapshots import Texts
from tests.world.faults import offer
from tests.world.offsets import commit

pytestmark = pytest.mark.usefixtures("java")

RECORDS = 100


class Sides:
    """Two brokers, a topic with 100 records in two partitions at the source, and the command line."""

    def __init__(self, source: Broker, destination: Broker, capsys: pytest.CaptureFixture[str]) -> None:
        self.source = source
        self.destination = destination
        self._capsys = capsys
        source.create_topic("orders", partitions=2)
        self.load(source, "orders", 2)
        self.group = f"shoal.{source.cluster_id}.{destination.cluster_id}"

    @staticmethod
    def load(broker: Broker, topic: str, partitions: int) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(RECORDS):
            producer.produce(topic, f"record {number}", partition=number % partitions)
        assert producer.flush(60) == 0

    def options(self) -> MirrorOptions:
        return MirrorOptions(
            ClientConfig.from_properties("source", {"bootstrap.servers": self.source.bootstrap})[0],
            ClientConfig.from_properties("destination", {"bootstrap.servers": self.destination.bootstrap})[0],
            TopicSelection("orders"),
        )

    def run(self, *arguments: str, topics: str = "orders") -> tuple[int, str, str]:
        """Return the exit code, stdout and stderr."""
        clusters = ("--from", self.source.bootstrap, "--to", self.destination.bootstrap)
        code = main(["mirror", *clusters, "--topics", topics, "--dry-run", *arguments])
        out, err = self._capsys.readouterr()
        return code, out, err

    def found(self, *arguments: str, topics: str = "orders", code: int = 0) -> dict[str, Any]:
        """Return the JSON object."""
        exit_code, out, err = self.run("--json", *arguments, topics=topics)
        assert exit_code == code, err
        (line,) = out.splitlines()
        found: dict[str, Any] = json.loads(line)
        assert found["type"] == "dry-run"
        return found

    def commit(self, source_offset: int, metadata: str | None = None, **changes: Any) -> None:
        """Commit the position of partition 0 in the mirror's group."""
        position = MirrorPosition(
            source_offset,
            source_offset,
            ProducerIdentity(1, 0),
            (0, 0),
            None,
            None,
            copy_rules(self.options().source),
            OffsetMap.begun_at(0, 0),
        )
        committed = replace(position, **changes).to_committed()
        if metadata is not None:
            committed = Committed(source_offset, metadata)
        with Cluster(self.options().source) as cluster:
            partition = TopicPartition("orders", 0)
            assert commit_offsets(cluster, self.group, {partition: committed}, MemberId()) == {}


@pytest.fixture
def sides(capsys: pytest.CaptureFixture[str]) -> Iterator[Sides]:
    with Broker(cluster_id="source") as source, Broker(cluster_id="destination") as destination:
        yield Sides(source, destination, capsys)


def test_dry_run_reports_partitions_to_copy_and_topics_to_create(sides: Sides) -> None:
    found = sides.found("--rename", r"(.*)=west.\1")
    assert (found["group"], found["holder"]) == (sides.group, None)
    assert found["source_cluster_id"] == sides.source.cluster_id
    (topic,) = found["topics"]
    assert (topic["plan"]["source"], topic["plan"]["destination"]) == ("orders", "west.orders")
    assert topic["partitions"] == [
        {"partition": number, "start_offset": 0, "end_offset": 50, "committed": False, "at_cut": False}
        for number in range(2)
    ]
    created = topic["plan"]["creation"]
    assert (created["partitions"], created["replication_factor"]) == (2, 1)
    assert created["configs"]["compression.type"] == "producer"
    assert (found["warnings"], found["refusal"]) == ([], None)


def test_dry_run_writes_nothing_and_starts_no_spark(sides: Sides, java: Path, tmp_path: Path) -> None:
    sides.destination.create_topic("orders")
    sides.load(sides.destination, "orders", 1)
    with Shoal(
        *("mirror", "--dry-run", "--topics", ".*"),
        *("--from", sides.source.bootstrap, "--to", sides.destination.bootstrap),
        *("--checkpoint", str(tmp_path / "checkpoint"), "--report", str(tmp_path / "report.html")),
        program=("-X", "importtime", *SHOAL),
        state=tmp_path,
        environment={"JAVA_HOME": str(java)},
    ) as run:
        run.wait()
    assert run.exit_code == 0, run.stderr
    assert "1 partitions added" in run.stdout
    assert "pyspark" not in run.stderr
    assert list(tmp_path.iterdir()) == []
    assert [topic.name for topic in sides.destination.topics] == ["orders"]
    assert len(sides.destination.topics.topic("orders").logs) == 1
    assert sides.destination.log("orders", 0).log_end_offset == RECORDS
    assert (
        AdminClient({"bootstrap.servers": sides.source.bootstrap}).list_consumer_groups().result(30).valid
        == []
    )


def test_copy_of_another_group_is_reported_with_the_group(sides: Sides, texts: Texts) -> None:
    sides.destination.create_topic("orders", partitions=2)
    sides.load(sides.destination, "orders", 1)
    ids = [str(broker.topics.topic("orders").topic_id) for broker in (sides.source, sides.destination)]
    own, sides.group = sides.group, "mig"
    sides.commit(50, source_topic_id=ids[0], destination_topic_id=ids[1])
    sides.group = own
    (warning,) = sides.found()["warnings"]
    texts(warning)
    (warning,) = sides.found("--adopt")["warnings"]
    texts(warning)
    (warning,) = sides.found("--adopt", "--continue-after", "source-retention")["warnings"]
    texts(warning)


def test_text_output_is_a_table_with_commands(sides: Sides, texts: Texts) -> None:
    code, out, err = sides.run("--rename", r"(.*)=west.\1", "--start", "latest")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    texts(lines)


def test_committed_position_is_reported_as_start(sides: Sides, texts: Texts) -> None:
    sides.destination.create_topic("orders", partitions=2)
    sides.load(sides.destination, "orders", 2)
    sides.commit(20)
    found = sides.found("--start", "latest")
    (topic,) = found["topics"]
    assert topic["partitions"] == [
        {"partition": 0, "start_offset": 20, "end_offset": 50, "committed": True, "at_cut": False},
        # Its topic has a position, and it has none: it came later.
        {"partition": 1, "start_offset": 0, "end_offset": 50, "committed": False, "at_cut": False},
    ]
    assert [each.partition(":")[0] for each in found["beginnings"]] == ["orders-1"]
    assert (topic["plan"]["creation"], topic["plan"]["present_partitions"]) == (None, 2)
    (warning,) = found["warnings"]
    texts(warning)


def test_copy_without_position_is_reported_with_each_reason_to_stop(sides: Sides, texts: Texts) -> None:
    sides.destination.create_topic("orders", partitions=2)
    sides.load(sides.destination, "orders", 2)
    (warning,) = sides.found()["warnings"]
    texts(warning)


@pytest.mark.parametrize(
    ("changes", "arguments"),
    [
        ({"destination_offset": 60}, ()),
        ({"source_topic_id": "another"}, ("--continue-after=source-reset",)),
        ({"destination_topic_id": "another"}, ()),
    ],
    ids=["loss", "reset", "deleted"],
)
def test_reason_to_stop_a_partition_is_a_warning(
    sides: Sides, changes: dict[str, Any], arguments: tuple[str, ...], texts: Texts
) -> None:
    sides.destination.create_topic("orders", partitions=2)
    sides.load(sides.destination, "orders", 2)
    sides.commit(20, **changes)
    texts(sides.found(*arguments)["warnings"])


def test_deleted_copy_is_a_warning_and_not_to_be_created(sides: Sides, texts: Texts) -> None:
    sides.commit(20)
    found = sides.found()
    (topic,) = found["topics"]
    assert topic["plan"]["creation"] is None
    assert "was deleted" in topic["plan"]["deleted"]
    texts(found["warnings"])
    _, out, _ = sides.run()
    texts(out)
    (topic,) = sides.found("--continue-after", "destination-loss")["topics"]
    assert topic["plan"]["deleted"] is None
    assert topic["plan"]["creation"]["partitions"] == 2


def test_position_overtaken_by_retention_is_a_warning(sides: Sides, texts: Texts) -> None:
    sides.destination.create_topic("orders", partitions=2)
    sides.commit(0)
    sides.source.log("orders", 0).delete_records(30)
    (warning,) = sides.found()["warnings"]
    texts(warning)


def test_offsets_of_another_program_are_a_warning(sides: Sides, texts: Texts) -> None:
    sides.commit(20, metadata="a consumer's")
    (warning,) = sides.found()["warnings"]
    texts(warning)


def test_positions_that_expire_are_a_warning(sides: Sides, texts: Texts) -> None:
    offer(sides.source, ApiKey.OFFSET_COMMIT, oldest=5, newest=9)
    (warning,) = sides.found()["warnings"]
    texts(warning)


def test_position_of_a_newer_version_is_a_refusal(sides: Sides, texts: Texts) -> None:
    sides.commit(20, metadata='shoal9{"x":1}')
    found = sides.found(code=2)
    texts(found["refusal"])
    assert [topic["plan"]["source"] for topic in found["topics"]] == ["orders"]


def test_held_group_is_a_refusal_that_names_the_holder(sides: Sides, texts: Texts) -> None:
    with Cluster(replace(sides.options().source, client_id="the other mirror")) as cluster:
        member = GroupMember(
            cluster, sides.group, protocol="other", instance_id="other", session_timeout_ms=45_000
        )
        member.join()
        code, out, err = sides.run()
        assert code == 2
        texts(out)
        texts(err)
        assert len(err.splitlines()) == 1
        # He was not disturbed.
        member.heartbeat()


def test_unauthorized_creation_is_a_refusal_with_the_acls(sides: Sides, texts: Texts) -> None:
    sides.destination.create_topic("orders", partitions=2, config={"max.message.bytes": "1000"})
    found = sides.found(code=2)
    texts(found["refusal"])
    assert found["topics"] == []
    assert {
        "cluster": "source",
        "resource_type": "topic",
        "resource": "orders",
        "operation": "READ",
        "is_prefix": False,
    } in found["acls"]


def test_unauthorized_destination_is_reported_with_the_acls(sides: Sides, texts: Texts) -> None:
    sides.destination.faults.add(
        ApiKey.METADATA, times=None, topic="orders", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )
    code, out, err = sides.run()
    assert code == 2
    texts(err)
    texts(out.splitlines())


def test_unauthorized_group_is_a_refusal_with_the_other_results(sides: Sides, texts: Texts) -> None:
    sides.source.faults.add(ApiKey.DESCRIBE_GROUPS, times=None, error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    found = sides.found(code=2)
    texts(found["refusal"])
    assert [topic["plan"]["source"] for topic in found["topics"]] == ["orders"]
    assert found["missing_acls"] == [
        {
            "cluster": "source",
            "resource_type": "group",
            "resource": sides.group,
            "operation": "READ",
            "is_prefix": False,
        }
    ]
    texts(sides.run()[2])


def test_same_cluster_on_both_sides_is_refused_without_rename(sides: Sides, texts: Texts) -> None:
    sides.destination = sides.source
    texts(sides.found(code=2)["refusal"])
    again = sides.found("--rename", r"(.*)=\1.copy", topics="orders.*", code=2)
    texts(again["refusal"])
    (topic,) = sides.found("--rename", r"(.*)=\1.copy")["topics"]
    assert topic["plan"]["destination"] == "orders.copy"


def test_acl_command_for_later_partitions_is_printed(sides: Sides, texts: Texts) -> None:
    _, out, _ = sides.run(topics="orders")
    lines = out.splitlines()
    later = lines.index("  # later, once a topic of the source gets more partitions:")
    texts(lines[later + 1])
    _, out, _ = sides.run("--json", topics="orders")
    (command,) = json.loads(out)["later_acl_commands"]
    assert f"  {command}" == lines[later + 1]
    _, out, _ = sides.run("--once", topics="orders")
    assert "# later" not in out


def test_archive_as_the_destination_needs_no_acls(sides: Sides, tmp_path: Path) -> None:
    archive = Archive.open(str(tmp_path / "archive"), creates=True)
    found = sides.found("--to", archive.store.url)
    assert {each["cluster"] for each in found["acls"]} == {"source"}
    assert found["later_acl_commands"] == []


def test_consumer_groups_that_follow_are_reported_as_acls(sides: Sides, texts: Texts) -> None:
    for group in ("billing", "test-billing"):
        commit(sides.source, group, 1, "orders")
    found = sides.found("--groups", "(?!test-).*")
    groups = [each for each in found["acls"] if each["resource_type"] == "group"]
    assert [(each["cluster"], each["resource"], each["operation"]) for each in groups] == [
        ("source", sides.group, "READ"),
        ("source", "billing", "DESCRIBE"),
        ("destination", "billing", "READ"),
    ]
    _, out, _ = sides.run("--groups", ".*")
    texts(out)
    assert [each["resource"] for each in sides.found()["acls"] if each["resource_type"] == "group"] == [
        sides.group
    ]


# Findings that a failed connection does not report


def test_missing_java_is_named_and_the_exit_code_is_2(
    sides: Sides, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("shoal.spark.launch.java.importlib.util.find_spec", lambda name: None)
    (finding,) = sides.found(code=2)["machine"]
    assert "pip install 'shoal[java]'" in finding["text"]


def test_closed_spark_master_is_named_and_the_exit_code_is_2(sides: Sides) -> None:
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        code, _, err = sides.run("--master", f"spark://127.0.0.1:{taken.getsockname()[1]}")
    assert code == 2
    assert re.search(r"Connection refused.*--master", err)


def test_file_in_place_of_the_checkpoint_is_named(sides: Sides, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (finding,) = sides.found("--checkpoint", str(tmp_path / "file" / "state"), code=2)["machine"]
    assert "--checkpoint" in finding["text"]


@pytest.mark.parametrize(("option", "name"), [("--report", "report.html"), ("--control", "orders.sock")])
def test_missing_directory_of_a_file_is_named(sides: Sides, tmp_path: Path, option: str, name: str) -> None:
    file = tmp_path / "missing" / name
    code, _, err = sides.run(option, str(file))
    assert code == 2
    assert f"{option} '{file}'" in err or f"{option} {file}" in err
    file.parent.mkdir()
    assert sides.run(option, str(file))[0] == 0


def test_server_that_does_not_answer_beside_another_is_a_warning(sides: Sides) -> None:
    servers = f"nothing.invalid:9092,{sides.source.bootstrap}"
    code, _, err = sides.run("--from", servers)
    assert code == 0
    assert re.search(r"'nothing\.invalid'.*bootstrap\.servers of the source", err)


def test_missing_topic_is_an_error(sides: Sides, texts: Texts) -> None:
    code, out, err = sides.run("--once", topics="nothing")
    assert (code, out) == (2, "")
    texts(err)
