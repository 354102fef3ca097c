"""The sentences about incidents: which record, which option, and what a shell takes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from rig.read import read_topic
from rig.wait import wait_until
from shoal_broker import Broker
from tests.integration.shared_spark import shoal

pytestmark = pytest.mark.integration

GROUP = "sentences"


class Mirror:
    """Two embedded brokers, and runs of ``shoal mirror --once`` between them."""

    def __init__(self, source: Broker, destination: Broker, state: Path) -> None:
        self.source = source
        self.destination = destination
        self._state = state

    @staticmethod
    def load(broker: Broker, values: list[str]) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for value in values:
            producer.produce("orders", value)
        assert producer.flush(60) == 0

    def run(self, *options: str, code: int) -> tuple[dict[str, Any], str]:
        """Return the summary and stderr."""
        done = shoal(
            *("mirror", "--from", self.source.bootstrap, "--to", self.destination.bootstrap),
            *("--topics", "orders", "--group", GROUP, "--once", "--json", *options),
            state=self._state,
        )
        assert done.returncode == code, done.stderr
        summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return summary, done.stderr

    def copied(self) -> list[str]:
        return [
            (record.value or b"").decode() for record in read_topic(self.destination.bootstrap, "orders")[0]
        ]


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    with Broker() as source, Broker() as destination:
        source.create_topic("orders")
        yield Mirror(source, destination, tmp_path)


def test_foreign_record_is_named_by_its_offset_with_the_option_of_a_shell(mirror: Mirror) -> None:
    before = [f"record {number}" for number in range(5)]
    mirror.load(mirror.source, before)
    mirror.run(code=0)
    mirror.load(mirror.destination, ["foreign"])
    mirror.load(mirror.source, ["next"])

    summary, err = mirror.run(code=1)
    stopped = summary["stopped"]["orders-0"]
    assert "offset 5 " in stopped
    assert "--continue-after foreign-records" in stopped
    assert "Option" not in stopped
    assert stopped in err

    # The sentence promises that no record is doubled, and that the foreign one stays.
    assert "twice" in stopped
    summary, _ = mirror.run("--continue-after", "foreign-records", code=4)
    assert mirror.copied() == [*before, "foreign", "next"]


def test_deleted_copy_names_the_option_and_the_offsets_copied_again(mirror: Mirror) -> None:
    records = [f"record {number}" for number in range(20)]
    mirror.load(mirror.source, records)
    mirror.run(code=0)
    admin = AdminClient({"bootstrap.servers": mirror.destination.bootstrap})
    admin.delete_topics(["orders"])["orders"].result(30)
    wait_until(lambda: "orders" not in admin.list_topics(timeout=10).topics, "the end of the copy")

    summary, _ = mirror.run(code=1)
    assert "--continue-after destination-loss" in summary["stopped"]["orders-0"]

    summary, err = mirror.run("--continue-after", "destination-loss", code=4)
    assert mirror.copied() == records
    (incident,) = summary["incidents"]
    assert re.search(r"offsets.*0.*19", incident["reason"])
    # This mirror created the topic that it found empty.
    assert "created again" not in err
    assert re.search(r"orders-0 continued .*\(0 records lost\)", err)
