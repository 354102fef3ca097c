"""`shoal mirror --once` beside clusters that change: commands in, records, messages and exit codes out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from tests.integration.shared_spark import shoal
from tests.world.clusters import TwoBrokers, recreate
from tests.world.contents import content_of
from tests.world.faults import refuses_offsets
from tests.world.history import History
from tests.world.logs import lose_tail
from tests.world.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

GROUP = "nightly"


class Ended(NamedTuple):
    exit_code: int
    summary: dict[str, Any]
    messages: str

    @property
    def incidents(self) -> list[tuple[str, str, bool]]:
        """The partition, the kind, and whether it continued."""
        return [(each["partition"], each["kind"], each["continued"]) for each in self.summary["incidents"]]


def arguments(two: TwoBrokers, topics: str, *options: str) -> list[str]:
    return [*two.between, "--topics", topics, "--group", GROUP, "--once", *options]


def mirror_once(two: TwoBrokers, topics: str, state: Path, *options: str) -> Ended:
    done = shoal("mirror", *arguments(two, topics, *options), "--json", state=state, timeout_s=150)
    assert "Traceback" not in done.stderr
    return Ended(done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr)


def values(broker: Broker, topic: str) -> list[str]:
    return [(each.value or b"").decode() for each in content_of(broker.log(topic))]


def numbered(name: str, count: int) -> list[str]:
    return [f"{name} {number}" for number in range(count)]


# Another log behind the same number


def test_other_records_up_to_the_same_offset_are_not_up_to_date(brokers: TwoBrokers, tmp_path: Path) -> None:
    for topic in ("cut", "anew", "same"):
        brokers.source.create_topic(topic, 1)
        History(brokers.source.log(topic)).named("old", 10)
    assert mirror_once(brokers, "cut,anew,same", tmp_path).exit_code == 0

    History(lose_tail(brokers.source, "cut", 6)).named("other", 4)
    recreate(brokers.source, "anew").named("new", 10)

    ended = mirror_once(brokers, "cut,anew,same", tmp_path)
    assert ended.exit_code == 1
    assert sorted(ended.incidents) == [("anew-0", "source-reset", False), ("cut-0", "source-reset", False)]
    assert ended.summary["up_to_date"] is False
    assert "before offset 6" in ended.summary["stopped"]["cut-0"]
    assert "created again" in ended.summary["stopped"]["anew-0"]
    assert values(brokers.destination, "cut") == numbered("old", 10)

    ended = mirror_once(brokers, "cut,anew,same", tmp_path, "--continue-after", "source-reset")
    assert ended.exit_code == 4
    assert values(brokers.destination, "cut") == numbered("old", 10) + numbered("other", 4)
    assert values(brokers.destination, "anew") == numbered("old", 10) + numbered("new", 10)

    ended = mirror_once(brokers, "cut,anew,same", tmp_path)
    assert (ended.exit_code, ended.incidents, ended.summary["records"]) == (0, [], 0)


def test_copy_whose_leader_did_not_answer_is_not_up_to_date(brokers: TwoBrokers, tmp_path: Path) -> None:
    brokers.source.create_topic("cut", 1)
    History(brokers.source.log("cut")).named("old", 10)
    assert mirror_once(brokers, "cut", tmp_path).exit_code == 0

    lose_tail(brokers.destination, "cut", 6)
    brokers.destination.faults.add(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, times=1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    ended = mirror_once(brokers, "cut", tmp_path)
    assert ended.exit_code == 1
    assert ended.incidents == [("cut-0", "destination-loss", False)]
    assert ended.summary["up_to_date"] is False


# Changes while it runs

ALL, SOME = 400, 10
"""The records of each topic, and the least that are mirrored before the change."""


def change_while_it_runs(
    two: TwoBrokers, state: Path, change: Callable[[], object], *options: str
) -> tuple[Ended, int]:
    """Mirror the topics slow and quick, and change slow meanwhile; return how many of it were there then."""
    for topic in ("slow", "quick"):
        two.source.create_topic(topic, 1)
        History(two.source.log(topic)).named(long(topic), ALL)
    fault = two.destination.faults.add(ApiKey.PRODUCE, times=None, delay_s=0.1, topic="slow")
    with ThreadPoolExecutor(1) as thread:
        # A buffer of less than a hundred records: the rest is fetched later.
        buffer = "--fetch-buffer-bytes", str(1_048_576), *options
        ended = thread.submit(mirror_once, two, "slow,quick", state, *buffer)
        wait_until(lambda: copied(two, "slow") >= SOME or ended.done(), 100)
        there = copied(two, "slow")
        change()
        two.destination.faults.remove(fault)
        return ended.result(), there


def long(topic: str) -> str:
    return topic + "." * 10_000


def copied(two: TwoBrokers, topic: str) -> int:
    return two.destination.log(topic).log_end_offset if two.destination.topics.get(topic) else 0


def after(policy: str) -> list[str]:
    return ["--continue-after", "source-reset"] if policy == "continue" else []


def delete(broker: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(20)


@pytest.mark.parametrize(("policy", "exit_code"), [("fail", 1), ("continue", 4)])
def test_deleted_source_topic_ends_its_partition(
    brokers: TwoBrokers, tmp_path: Path, policy: str, exit_code: int
) -> None:
    ended, there = change_while_it_runs(
        brokers, tmp_path, lambda: delete(brokers.source, "slow"), *after(policy)
    )
    assert ended.exit_code == exit_code
    assert ended.incidents == [("slow-0", "source-reset", policy == "continue")]
    assert re.search(r"deleted.*mirrored", ended.summary["incidents"][0]["reason"])
    found = values(brokers.destination, "slow")
    assert found == numbered(long("slow"), len(found))
    assert len(found) >= there
    if policy == "continue":
        assert ended.summary["lost"] == ALL - len(found)
    else:
        assert list(ended.summary["stopped"]) == ["slow-0"]
    assert values(brokers.destination, "quick") == numbered(long("quick"), ALL)


def test_source_topic_deleted_after_its_last_record_ends_the_run(brokers: TwoBrokers, tmp_path: Path) -> None:
    """Everything is copied, and only the position cannot be committed any more."""
    for topic in ("gone", "other"):
        brokers.source.create_topic(topic, 1)
        History(brokers.source.log(topic)).named(topic, SOME)
    fault = brokers.destination.faults.add(ApiKey.PRODUCE, times=1, delay_s=4, topic="gone")
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(mirror_once, brokers, "gone,other", tmp_path)
        # The answer to the last batch comes late, so its position is not committed yet.
        assert brokers.destination.faults.wait_for(fault, timeout_s=100)
        delete(brokers.source, "gone")
        result = ended.result()
    assert result.exit_code == 1
    assert result.incidents == [("gone-0", "source-reset", False)]
    assert values(brokers.destination, "other") == numbered("other", SOME)


# Sentences: which record, which option, and what a shell takes


def test_foreign_record_is_named_by_its_offset_with_the_option_of_a_shell(
    brokers: TwoBrokers, tmp_path: Path
) -> None:
    brokers.source.create_topic("orders", 1)
    history = History(brokers.source.log("orders"))
    history.named("record", 5)
    assert mirror_once(brokers, "orders", tmp_path).exit_code == 0
    History(brokers.destination.log("orders")).named("foreign", 1)
    history.named("next", 1)

    ended = mirror_once(brokers, "orders", tmp_path)
    stopped = ended.summary["stopped"]["orders-0"]
    assert ended.exit_code == 1
    assert all(each in stopped for each in ("offset 5 ", "--continue-after foreign-records", "twice"))
    assert "Option" not in stopped
    assert stopped in ended.messages
    assert ended.summary["ended"].endswith("but for what is stopped")

    # The sentence promises that no record is doubled, and that the foreign one stays.
    assert mirror_once(brokers, "orders", tmp_path, "--continue-after", "foreign-records").exit_code == 4
    assert values(brokers.destination, "orders") == [*numbered("record", 5), "foreign 0", "next 0"]


def test_deleted_copy_names_the_option_and_the_offsets_copied_again(
    brokers: TwoBrokers, tmp_path: Path
) -> None:
    brokers.source.create_topic("orders", 1)
    History(brokers.source.log("orders")).named("record", 20)
    assert mirror_once(brokers, "orders", tmp_path).exit_code == 0
    delete(brokers.destination, "orders")

    ended = mirror_once(brokers, "orders", tmp_path)
    assert ended.exit_code == 1
    assert "--continue-after destination-loss" in ended.summary["stopped"]["orders-0"]

    ended = mirror_once(brokers, "orders", tmp_path, "--continue-after", "destination-loss")
    assert (ended.exit_code, values(brokers.destination, "orders")) == (4, numbered("record", 20))
    (incident,) = ended.summary["incidents"]
    assert re.search(r"offsets.*0.*19", incident["reason"])
    # This mirror created the topic that it found empty.
    assert "created again" not in ended.messages
    assert re.search(r"orders-0 continued .*\(0 ", ended.messages)


def test_destination_that_refuses_offsets_of_its_log_stops_the_partition(
    brokers: TwoBrokers, tmp_path: Path
) -> None:
    brokers.source.create_topic("cut", 1)
    history = History(brokers.source.log("cut"))
    history.named("old", 5)
    assert mirror_once(brokers, "cut", tmp_path).exit_code == 0
    history.named("new", 1)
    refuses_offsets(brokers.destination, times=1_000_000)

    ended = mirror_once(brokers, "cut", tmp_path)

    assert ended.exit_code == 1, ended.messages
    assert re.search(r"0.*5.*reports", ended.summary["stopped"]["cut-0"])
    assert values(brokers.destination, "cut") == numbered("old", 5)
