"""``shoal mirror`` as a user runs it: a process of its own, between embedded brokers."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from rig.shoal import Shoal, run_shoal, run_until_closed
from shoal.mirroring.model.progress import Phase
from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from tests.snapshots import Texts
from tests.spark.mirror_command import complaints

#: Longer than the tests' own waits, on a busy machine.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

RECORDS = 100


def load(broker: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "lz4"})
    for number in range(RECORDS):
        producer.produce(topic, f"record {number}", partition=number % 2)
    assert producer.flush(60) == 0


@pytest.fixture
def brokers() -> Iterator[tuple[Broker, Broker]]:
    with Broker() as source, Broker() as destination:
        source.create_topic("orders", partitions=2)
        load(source, "orders")
        yield source, destination


@pytest.fixture
def command(brokers: tuple[Broker, Broker], tmp_path: Path) -> list[str]:
    source, destination = brokers
    return [
        *("mirror", "--from", source.bootstrap, "--to", destination.bootstrap),
        *("--topics", "orders", "--master", "local[2]", "--checkpoint", str(tmp_path), "--json"),
    ]


def copied(broker: Broker) -> int:
    return sum(broker.log("orders", partition).log_end_offset for partition in range(2))


def objects(stdout: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stdout.splitlines()]


@pytest.mark.long
def test_mirror_once_copies_all_and_the_second_time_nothing(
    brokers: tuple[Broker, Broker], command: list[str]
) -> None:
    for records in (RECORDS, 0):
        run = run_shoal(*command, "--once")
        assert (run.returncode, complaints(run.stderr)) == (0, "")
        *reports, summary = objects(run.stdout)
        assert {report["type"] for report in reports} <= {"progress"}
        assert (summary["type"], summary["records"], summary["exit_code"]) == ("summary", records, 0)
        assert copied(brokers[1]) == RECORDS


def ctrl_c(process: Shoal) -> None:
    """Send SIGINT like a terminal: to the JVM and the workers, too."""
    os.killpg(process.process_id, signal.SIGINT)


def stop(process: Shoal) -> None:
    process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("interrupt", [ctrl_c, pytest.param(stop, marks=pytest.mark.long)])
def test_signal_ends_a_running_mirror_with_0(
    brokers: tuple[Broker, Broker], command: list[str], interrupt: Callable[[Shoal], None]
) -> None:
    with Shoal(*command) as process:
        process.wait_for(lambda progress: progress["records"] == RECORDS)
        phases = [each["phase"] for each in process.objects()]
        interrupt(process)
        summary = process.wait()
    err = process.stderr
    assert (process.exit_code, complaints(err)) == (0, "")
    assert Phase.STARTING_SPARK.value in phases
    assert phases[-1] == "copying"
    name = "SIGINT" if interrupt is ctrl_c else "SIGTERM"
    assert f"Z shoal: stopping on {name}: " in err
    assert (summary["records"], summary["ended"]) == (RECORDS, f"stopped by {name}")
    assert (summary["up_to_date"], summary["lag_records"]) == (True, 0)
    assert copied(brokers[1]) == RECORDS


def test_mirror_with_closed_stdout_exits_with_1(brokers: tuple[Broker, Broker], command: list[str]) -> None:
    run = run_until_closed(*command)
    assert (run.returncode, complaints(run.stderr)) == (1, "")


def test_unusable_state_directory_is_exit_code_2(command: list[str], texts: Texts) -> None:
    run = run_shoal(*command, "--once", environment={"XDG_STATE_HOME": os.devnull})
    assert run.returncode == 2
    (sentence,) = run.stderr.splitlines()
    texts(sentence)
    assert "XDG_STATE_HOME" in sentence


def test_missing_topic_is_exit_code_2(command: list[str], texts: Texts) -> None:
    command[command.index("--topics") + 1] = "nonsense"
    run = run_shoal(*command, "--verbose")
    assert run.returncode == 2
    traceback, sentence = complaints(run.stderr).partition("\n")[2].split("shoal: ")
    assert traceback.startswith("Traceback")
    *_, last = objects(run.stdout)  # the check of the clusters may take a moment
    assert last == {"type": "error", "error": sentence.strip(), "exit_code": 2}
    texts(sentence)


def test_signal_while_checking_clusters_ends_at_once(command: list[str], texts: Texts) -> None:
    with Broker() as silent:
        silent.faults.add(ApiKey.METADATA, delay_s=60, times=None)
        command[command.index("--from") + 1] = silent.bootstrap
        with Shoal(*command) as process:
            assert process.wait_for(lambda _: True)["phase"] == "checking the clusters"
            stop(process)
            summary = process.wait(10)
    assert (process.exit_code, summary["type"], summary["records"]) == (0, "summary", 0)
    assert "SIGTERM" in summary["ended"]
