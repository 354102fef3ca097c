"""``shoal cutover`` as a user runs it, between embedded brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from shoal.cli import main
from shoal.client.admin import alter_topic_configs
from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed
from shoal.error_codes import ErrorCode
from shoal.mirroring.cutover.certificate import CutGroupOffset, read_certificate
from shoal.mirroring.cutover.options import CutoverOptions
from shoal.mirroring.cutover.outcome import CutoverReport
from shoal.mirroring.cutover.run import cut_over
from shoal.mirroring.model.copy_options import copy_rules
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from tests.group_member import GroupMember
from tests.snapshots import Texts
from tests.world import batches
from tests.world.clusters import TwoBrokers
from tests.world.faults import offer
from tests.world.history import COMMIT, History
from tests.world.logs import lagging
from tests.world.offsets import commit, committed

ORDERS = TopicPartition("orders", 0)
GROUP = "shoal.source.destination"


class Move:
    """A mirror of two partitions, the second of them empty, whose group has a member."""

    def __init__(self, two: TwoBrokers, file: Path, histories: list[History], mirror: GroupMember) -> None:
        self.two = two
        self.mirror = mirror
        self.file = file
        self.histories = histories

    @property
    def page(self) -> Path:
        return self.file.with_suffix(".html")

    def command(self, *more: str) -> list[str]:
        what = ["--topics", "orders", "--groups", ".*"]
        times = ["--timeout", "1"]
        # Embedded brokers have no ACLs.
        return ["cutover", *self.two.between, *what, *times, "--allow", "acls", *more]

    def cut(self, *more: str) -> int:
        return main(self.command("--certificate", str(self.file), *more))


@pytest.fixture
def move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Move]:
    def looking_often(options: CutoverOptions, **others: Any) -> CutoverReport:
        often = replace(options.mirror, timing=replace(options.mirror.timing, gate_look_s=0.01))
        return cut_over(replace(options, mirror=often), **others)

    monkeypatch.setattr("shoal.cli.cutover.cut_over", looking_often)
    with ExitStack() as stack:
        two = stack.enter_context(TwoBrokers.started())
        two = two.with_settings(group=GROUP, rules=copy_rules(two.settings.source))
        histories = two.topic("orders", 2)
        histories[0].plain(3).transaction(2, ends=COMMIT).plain(3).transaction(1, ends=COMMIT)
        two.run(two.ranges("orders"))
        cluster = stack.enter_context(Cluster(two.settings.source))
        member = GroupMember(cluster, GROUP, protocol="shoal-1", instance_id="shoal-1")
        member.join([ORDERS])
        yield Move(two, tmp_path / "orders.json", histories, member)


def gates(out: str) -> list[list[str]]:
    return [line.split()[:-1] for line in out.splitlines()[1:] if line and line[-1].isdigit()]


@pytest.mark.usefixtures("java")
def test_cutover_moves_groups_and_writes_the_certificate(
    move: Move, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    commit(move.two.source, "app", 7, "orders")
    assert move.cut() == 0
    out, err = capsys.readouterr()
    assert gates(out) == [
        ["mirror", "passed"],
        ["in", "step", "passed"],
        ["quiet", "passed"],
        ["complete", "passed"],
        ["groups", "passed"],
        ["certificate", "passed"],
    ]
    texts(out.splitlines()[-1])
    texts(line for line in err.splitlines() if ": waits until " in line)
    assert "with 1 offsets" in move.page.read_text()
    assert committed(move.two.destination, "app", "orders") == Committed(
        6, "translated-by-shoal/1 source 7 6 exact"
    )
    offsets = move.two.destination.groups.read("app", lambda group: list(group.offsets.values()))
    assert [each.expires_at_ms for each in offsets] == [-1]  # the broker's retention holds for consumers
    certificate = read_certificate(str(move.file))
    first, second = certificate.partitions
    assert (first.source.start, first.source.end, first.destination.end) == (0, 11, 9)
    assert (first.records, first.origin) == (9, (0, 0))
    assert (second.source.end, second.records, second.origin) == (0, 0, (0, 0))
    assert certificate.groups == (CutGroupOffset("app", "orders", 0, 7, 6, "exact", "unchanged"),)


def test_rehearsal_changes_nothing(move: Move, capsys: pytest.CaptureFixture[str], texts: Texts) -> None:
    commit(move.two.source, "app", 7, "orders")
    assert main(move.command("--rehearse", "--certificate", str(move.file))) == 0
    out, _ = capsys.readouterr()
    assert [each[0] for each in gates(out)] == ["mirror", "in", "complete", "groups", "certificate"]
    texts(out.splitlines()[-1])
    assert committed(move.two.destination, "app", "orders") is None
    assert list(move.file.parent.iterdir()) == []


def closed(move: Move, capsys: pytest.CaptureFixture[str]) -> str:
    """Cut over, and return the sentence of the gate that does not open."""
    assert move.cut() == 1
    assert not move.file.exists()
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "not cut over"
    return err.splitlines()[-1]


def test_cutover_without_a_mirror_times_out_and_changes_nothing(
    move: Move, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    assert main([*move.command("--certificate", str(move.file)), "--group", "other"]) == 1
    sentence = capsys.readouterr().err.splitlines()[-1]
    texts(sentence)


def test_cutover_waits_for_an_open_transaction(
    move: Move, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    history = move.histories[0]
    history.store(history.batch(2, flags=batches.TRANSACTIONAL, producer_id=77, producer_epoch=0))
    sentence = closed(move, capsys)
    texts(sentence)


def test_cutover_waits_for_a_transaction_that_commits_offsets_alone(
    move: Move, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    """The partitions of the topics that move show no such transaction."""
    commit(move.two.source, "app", 4, "orders")
    producer = Producer({"bootstrap.servers": move.two.source.bootstrap, "transactional.id": "t"})
    producer.init_transactions(10.0)
    producer.begin_transaction()
    consumer = Consumer({"bootstrap.servers": move.two.source.bootstrap, "group.id": "app"})
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([ConfluentPartition("orders", 0, 7)], metadata, 10.0)
    texts(closed(move, capsys))
    assert committed(move.two.destination, "app", "orders") is None
    producer.commit_transaction(10.0)
    assert move.cut() == 0
    there = committed(move.two.destination, "app", "orders")
    assert there is not None
    assert there.offset == 6


def test_cutover_names_a_partition_that_stands_still(
    move: Move, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    move.histories[1].plain(4)
    sentence = closed(move, capsys)
    texts(sentence)


def test_cutover_names_a_configuration_that_differs(
    move: Move, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    with Cluster(move.two.settings.source) as cluster:
        assert alter_topic_configs(cluster, {"orders": {"max.message.bytes": "77777"}}) == {}
    sentence = closed(move, capsys)
    texts(sentence)
    assert "--allow" in sentence
    assert move.cut("--allow", "configs,acls") == 0


def test_cutover_of_a_damaged_copy_fails_at_once(
    move: Move, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    move.two.destination.log("orders", 1).store(bytes(batches.batch(2)))
    sentence = closed(move, capsys)
    texts(sentence)


def test_cutover_with_a_refused_commit_ends_without_a_certificate(
    move: Move, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    commit(move.two.source, "app", 7, "orders")
    faults = move.two.destination.faults
    faults.add(ApiKey.OFFSET_COMMIT, error=ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
    sentence = closed(move, capsys)
    texts(sentence)
    assert "Nothing was changed" in sentence


def test_cutover_without_answers_to_its_commits_names_them(
    move: Move, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    commit(move.two.source, "app", 7, "orders")
    faults = move.two.destination.faults
    lost = faults.add(ApiKey.OFFSET_COMMIT, drop="before", times=None)
    sentence = closed(move, capsys)
    assert "Nothing was changed" not in sentence
    texts(sentence)
    faults.remove(lost)
    faults.add(ApiKey.OFFSET_COMMIT, drop="after", times=None)
    assert move.cut("--timeout", "30") == 0
    texts(capsys.readouterr().out.splitlines()[-1])


def test_cutover_waits_for_followers_that_lack_records(
    move: Move, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    end = move.two.source.log("orders").log_end_offset
    slow = lagging(move.two.source, "orders", end)
    History(slow).plain(1)
    texts(closed(move, capsys))


@pytest.mark.usefixtures("java")
def test_plan_of_the_way_back_begins_at_the_cut(
    move: Move, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    assert move.cut() == 0
    two = move.two
    History(two.destination.log("orders")).plain(4)
    clusters = ["--from", two.destination.bootstrap, "--to", two.source.bootstrap]
    plan = ["mirror", *clusters, "--topics", "orders", "--from-certificate", str(move.file), "--dry-run"]
    assert main(plan) == 2
    texts(capsys.readouterr().err.splitlines()[-1])
    move.mirror.leave()
    assert main([*plan, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [
        (each["start_offset"], each["end_offset"], each["committed"], each["at_cut"])
        for each in found["topics"][0]["partitions"]
    ] == [(9, 13, False, True), (0, 0, False, True)]
    assert not [each for each in found["warnings"] if "committed position" in each]
    # The map of the first mirror translates groups that lag behind the cut, and its members say if it runs.
    needed = {
        "cluster": "destination",
        "resource_type": "group",
        "resource": GROUP,
        "operation": "DESCRIBE",
        "is_prefix": False,
    }
    assert [each for each in found["acls"] if each["resource"] == GROUP] == [needed]
    assert main(plan) == 0
    assert "cut 2" in capsys.readouterr().out
    History(two.source.log("orders")).plain(1)
    assert main(plan) == 2
    texts(capsys.readouterr().err)


def test_cutover_waits_for_consumers_at_the_source(
    move: Move, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    commit(move.two.source, "app", 7, "orders")
    with Cluster(move.two.settings.source) as cluster:
        GroupMember(cluster, "app", protocol="range", instance_id="app-1").join([ORDERS])
        sentence = closed(move, capsys)
    texts(sentence)
    assert committed(move.two.destination, "app", "orders") is None


def test_cutover_lets_consumers_of_other_topics_go_on(
    move: Move, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    source, clicks = move.two.source, TopicPartition("clicks", 0)
    source.create_topic("clicks")
    commit(source, "app", 7, "orders")
    for group in ("app", "other"):
        commit(source, group, 0, "clicks")
    with Cluster(move.two.settings.source) as cluster:
        GroupMember(cluster, "other", protocol="range", instance_id="other-1").join([clicks])
        assert move.cut() == 0
    texts(capsys.readouterr().err.splitlines()[-1])
    assert {each.group for each in read_certificate(str(move.file)).groups} == {"app"}


def test_cutover_waits_for_consumers_at_a_source_that_lists_no_states(
    move: Move, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    offer(move.two.source, ApiKey.LIST_GROUPS, newest=3)  # as before 2.6
    commit(move.two.source, "app", 7, "orders")
    with Cluster(move.two.settings.source) as cluster:
        GroupMember(cluster, "app", protocol="range", instance_id="app-1").join([ORDERS])
        sentence = closed(move, capsys)
    texts(sentence)


def test_cutover_as_json_prints_each_gate_and_the_outcome(
    move: Move, capsys: pytest.CaptureFixture[str]
) -> None:
    assert move.cut("--json") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found[0]["type"] == "gate"
    assert found[0]["waits_for"]
    assert (found[-1]["type"], found[-1]["exit_code"], found[-1]["problem"]) == ("cutover", 0, None)
    assert found[-1]["certificate"] == json.loads(move.file.read_text())


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["--certificate", "{file}", "--allow", "acl"],
        ["--certificate", "{file}/missing/x"],
        ["--certificate", "{file}", "--topics", "none"],
    ],
)
def test_cutover_with_wrong_usage_exits_2(
    move: Move, capsys: pytest.CaptureFixture[str], more: list[str], texts: Texts
) -> None:
    assert main(move.command(*(each.format(file=move.file) for each in more))) == 2
    texts(capsys.readouterr().err)
