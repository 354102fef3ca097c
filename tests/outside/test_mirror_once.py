"""`shoal mirror --once` beside clusters that change: commands in, records, messages and exit codes out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shoal.broker import Broker
from tests import batches
from tests.integration.mirror_process import close_shared_spark, shoal
from tests.two_brokers import NOW_MS, History, TwoBrokers, content_of, lose_tail

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

GROUP = "nightly"


@pytest.fixture(scope="module", autouse=True)
def shared_spark() -> Iterator[None]:
    yield
    close_shared_spark()


class Ended(NamedTuple):
    exit_code: int
    summary: dict[str, Any]

    @property
    def incidents(self) -> list[tuple[str, str, bool]]:
        """The partition, the kind, and whether it continued."""
        return [(each["partition"], each["kind"], each["continued"]) for each in self.summary["incidents"]]


def arguments(two: TwoBrokers, topics: str, *options: str) -> list[str]:
    clusters = ["--from", two.source.bootstrap, "--to", two.destination.bootstrap]
    return [*clusters, "--topics", topics, "--group", GROUP, "--once", *options]


def mirror_once(two: TwoBrokers, topics: str, state: Path, *options: str) -> Ended:
    done = shoal("mirror", *arguments(two, topics, *options), "--json", state=state, timeout_s=150)
    assert "Traceback" not in done.stderr
    return Ended(done.returncode, json.loads(done.stdout.splitlines()[-1]))


def fill(history: History, name: str, count: int) -> None:
    """Add batches of one record each, in the log's present leader epoch."""
    for number in range(count):
        record = batches.batch(
            [f"{name} {number}".encode()],
            base_offset=history.next_offset,
            base_timestamp=NOW_MS,
            leader_epoch=history.log.leader_epoch,
        )
        history.store(record, shown=True)


def values(broker: Broker, topic: str) -> list[str]:
    return [(each.value or b"").decode() for each in content_of(broker.log(topic))]


def numbered(name: str, count: int) -> list[str]:
    return [f"{name} {number}" for number in range(count)]


def create_again(broker: Broker, topic: str) -> History:
    """Delete a topic and create another one of its name. The group's offsets stay."""
    broker.topics.delete(broker.topics.topic(topic))
    broker.leaders.forget(topic)
    broker.create_topic(topic, 1)
    return History(broker.log(topic))


# Another log behind the same number


def test_other_records_up_to_the_same_offset_are_not_up_to_date(brokers: TwoBrokers, tmp_path: Path) -> None:
    for topic in ("cut", "anew", "same"):
        brokers.source.create_topic(topic, 1)
        fill(History(brokers.source.log(topic)), "old", 10)
    assert mirror_once(brokers, "cut,anew,same", tmp_path).exit_code == 0

    fill(History(lose_tail(brokers.source, "cut", 6)), "other", 4)
    fill(create_again(brokers.source, "anew"), "new", 10)

    ended = mirror_once(brokers, "cut,anew,same", tmp_path)
    assert ended.exit_code == 1
    assert sorted(ended.incidents) == [("anew-0", "source-reset", False), ("cut-0", "source-reset", False)]
    assert ended.summary["up_to_date"] is False
    assert "only up to offset 6, and 10 was mirrored already" in ended.summary["stopped"]["cut-0"]
    assert "was deleted and created again" in ended.summary["stopped"]["anew-0"]
    assert values(brokers.destination, "cut") == numbered("old", 10)

    ended = mirror_once(brokers, "cut,anew,same", tmp_path, "--on-source-reset", "continue")
    assert ended.exit_code == 4
    assert values(brokers.destination, "cut") == numbered("old", 10) + numbered("other", 4)
    assert values(brokers.destination, "anew") == numbered("old", 10) + numbered("new", 10)

    ended = mirror_once(brokers, "cut,anew,same", tmp_path)
    assert (ended.exit_code, ended.incidents, ended.summary["records"]) == (0, [], 0)
