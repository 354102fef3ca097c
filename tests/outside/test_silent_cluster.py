"""A cluster that does not answer is reported by everything that a mirror shows, also without traffic."""

from __future__ import annotations

import math
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rig import wait_until
from rig.shoal import Shoal, serve_broker
from shoal.cli.control import ask_mirror
from shoal_broker import Broker
from shoal_broker.cluster import BrokerCluster
from tests.hasty import hasty

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

TOPIC, PARTITIONS, RECORDS = "orders", 3, 30

REFRESH_S = 5


def load(bootstrap: str, records: int = RECORDS, partitions: Sequence[int] = range(PARTITIONS)) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(records):
        partition = partitions[number % len(partitions)]
        producer.produce(TOPIC, b"value %d" % number, partition=partition)
    assert producer.flush(60) == 0


class Watched:
    """A mirror without traffic, and the ways in which an operator looks at it."""

    def __init__(self, mirror: Shoal, socket: str, port: int) -> None:
        self.mirror = mirror
        self._socket = socket
        self._at = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{self._at}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        return float(found[1]) if found else math.nan

    def status(self) -> dict[str, Any]:
        answer = ask_mirror(self._socket, "status")
        assert answer["ok"], answer["text"]
        return answer

    def is_up_to_date(self, line: dict[str, Any]) -> bool:
        return bool(line.get("states", {}).get("up to date") == PARTITIONS)

    def assert_well(self) -> None:
        self.mirror.wait_for(self.is_up_to_date)
        wait_until(lambda: self.get("/readyz")[0] == 200, "the mirror to be ready")
        for cluster in ("source", "destination"):
            wait_until(lambda: self.metric(f'shoal_cluster_up{{cluster="{cluster}"}}') == 1, cluster)  # noqa: B023
        assert self.metric('shoal_partitions{state="up to date"}') == PARTITIONS
        assert "does not answer" not in self.status()["text"]

    def assert_silent(self, silent: str, other: str) -> None:
        sentence = f"the {silent} cluster does"
        line = self.mirror.wait_for(lambda line: bool(line.get("clusters_down")))
        assert list(line["clusters_down"]) == [silent]
        assert line["clusters_down"][silent]["since"] > 0
        assert (line["states"]["up to date"], line["states"]["waiting"]) == (0, PARTITIONS)
        assert all("answer" in reason or "connection" in reason for reason in line["waiting"].values())
        assert len(line["waiting"]) == PARTITIONS
        status, reason = self.get("/readyz")
        assert (status, sentence in reason) == (503, True), reason
        assert self.get("/healthz")[0] == 200  # a restart does not help
        assert self.metric(f'shoal_cluster_up{{cluster="{silent}"}}') == 0
        assert self.metric(f'shoal_cluster_up{{cluster="{other}"}}') == 1
        assert self.metric('shoal_partitions{state="up to date"}') == 0
        assert self.metric('shoal_partitions{state="waiting"}') == PARTITIONS
        assert self.metric(f'shoal_partition_waiting{{topic="{TOPIC}",partition="0"}}') == 1
        answer = self.status()
        assert sentence in answer["text"]
        assert answer["states"]["up to date"] == 0
        assert list(answer["clusters_down"]) == [silent]


@contextmanager
def watching(source: str, destination: str, directory: Path) -> Iterator[Watched]:
    with ExitStack() as stack:
        path, port = str(directory / "control.sock"), free_port()
        mirror = stack.enter_context(
            Shoal(
                "mirror",
                "--json",
                *("--from", source, "--to", destination, "--topics", TOPIC, "--control", path),
                *("--refresh", str(REFRESH_S), "--metrics", f"127.0.0.1:{port}"),
                state=directory / "state",
            )
        )
        watched = Watched(mirror, path, port)
        watched.assert_well()
        yield watched


def free_port() -> int:
    with Broker() as broker:
        return broker.port


@contextmanager
def refusing(broker: Broker) -> Iterator[None]:
    """Close a broker's port: it refuses connections."""
    broker.stop()
    try:
        yield
    finally:
        broker.start()


@pytest.mark.parametrize(
    ("silent", "other", "how"),
    [
        ("source", "destination", "refuses"),
        ("destination", "source", "stalls"),
        pytest.param("source", "destination", "stalls", marks=pytest.mark.long),
        pytest.param("destination", "source", "refuses", marks=pytest.mark.long),
    ],
)
def test_silent_cluster_is_reported_everywhere_until_it_answers(
    silent: str, other: str, how: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        addresses: dict[str, str] = {}
        break_it: Callable[[], Any]
        running = stack.enter_context(Broker())
        addresses[other] = running.bootstrap
        if how == "refuses":
            broken = stack.enter_context(Broker())
            addresses[silent], break_it = broken.bootstrap, lambda: refusing(broken)
        else:
            server = stack.enter_context(serve_broker())
            addresses[silent], break_it = server.address, server.paused  # it accepts and does not answer
        create(addresses["source"])
        load(addresses["source"])
        with watching(addresses["source"], addresses["destination"], tmp_path) as watched:
            with break_it():
                watched.assert_silent(silent, other)
            watched.assert_well()
            with break_it():
                watched.mirror.wait_for(lambda line: bool(line.get("clusters_down")))
                watched.mirror.send_signal(signal.SIGTERM)
                summary = watched.mirror.wait()
            stderr = watched.mirror.stderr
    assert summary["type"] == "summary"
    assert (summary["up_to_date"], list(summary["clusters_down"])) == (False, [silent])
    assert f"the {silent} cluster does" in stderr
    assert f"the {other} cluster does" not in stderr


def test_copy_without_a_leader_is_not_up_to_date_while_other_brokers_answer(tmp_path: Path) -> None:
    with Broker() as source, BrokerCluster(2) as destination:
        create(source.bootstrap)
        load(source.bootstrap)
        destination.create_topic(TOPIC, PARTITIONS)
        with watching(source.bootstrap, destination.bootstrap, tmp_path) as watched:
            silent = [
                f"{TOPIC}-{each}" for each in range(PARTITIONS) if destination.leader_of(TOPIC, each) == 2
            ]
            assert 0 < len(silent) < PARTITIONS
            destination.node(2).hang_up()  # no other broker takes its partitions over
            line = watched.mirror.wait_for(lambda line: sorted(line.get("waiting", ())) == silent, 60)
            assert line["states"]["up to date"] == PARTITIONS - len(silent)
            assert watched.metric('shoal_partitions{state="waiting"}') == len(silent)
            destination.start_node(2)
            watched.mirror.wait_for(watched.is_up_to_date)
            watched.mirror.send_signal(signal.SIGTERM)
            summary = watched.mirror.wait()
        written = [destination.nodes[0].log(TOPIC, each).log_end_offset for each in range(PARTITIONS)]
    assert (watched.mirror.exit_code, summary["up_to_date"], summary["records"]) == (0, True, RECORDS)
    assert sum(written) == RECORDS


@pytest.mark.long
def test_lag_stays_as_it_is_while_the_destination_is_down(tmp_path: Path) -> None:
    lags: list[int] = []

    def is_seen(line: dict[str, Any]) -> bool:
        lags.append(line["lag_records"])
        return False

    with Broker() as source, Broker() as destination:
        create(source.bootstrap)
        load(source.bootstrap)
        arguments = ["--from", source.bootstrap, "--to", destination.bootstrap, "--topics", TOPIC]
        arguments += ["--refresh", "3"]
        program = hasty(places_look_s=5.0)
        with Shoal("mirror", "--json", *arguments, state=tmp_path / "state", program=program) as mirror:
            mirror.wait_for(lambda line: line.get("states", {}).get("up to date") == PARTITIONS)
            with refusing(destination):
                for number in range(3):  # one partition after the other
                    load(source.bootstrap, 20 * PARTITIONS, [number])
                mirror.wait_for(lambda line: line["lag_records"] == 60 * PARTITIONS)
                # Over the ends of windows, and over refreshes.
                with pytest.raises(AssertionError, match="waited 12 s"):
                    mirror.wait_for(is_seen, timeout_s=12)
            mirror.wait_for(lambda line: line["states"]["up to date"] == PARTITIONS)
            mirror.send_signal(signal.SIGTERM)
            mirror.wait()
    assert len(lags) > 4
    assert set(lags) == {60 * PARTITIONS}


def create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
