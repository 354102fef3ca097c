"""``shoal mirror`` as a user runs it: a process of its own, between embedded brokers."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from tests.snapshots import Texts
from tests.spark.mirror_command import complaints

#: Longer than the tests' own waits, on a busy machine.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

TIMEOUT_S = 240
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
        *(sys.executable, "-m", "shoal", "mirror", "--from", source.bootstrap, "--to", destination.bootstrap),
        *("--topics", "orders", "--master", "local[2]", "--checkpoint", str(tmp_path), "--json"),
    ]


def copied(broker: Broker) -> int:
    return sum(broker.log("orders", partition).log_end_offset for partition in range(2))


def objects(stdout: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stdout.splitlines()]


def test_mirror_once_copies_all_and_the_second_time_nothing(
    brokers: tuple[Broker, Broker], command: list[str]
) -> None:
    for records in (RECORDS, 0):
        run = subprocess.run(
            [*command, "--once"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert (run.returncode, complaints(run.stderr)) == (0, "")
        *reports, summary = objects(run.stdout)
        assert {report["type"] for report in reports} <= {"progress"}
        assert (summary["type"], summary["records"], summary["exit_code"]) == ("summary", records, 0)
        assert copied(brokers[1]) == RECORDS


def ctrl_c(process: subprocess.Popen[str]) -> None:
    """Send SIGINT like a terminal: to the JVM and the workers, too."""
    os.killpg(process.pid, signal.SIGINT)


@pytest.mark.parametrize("interrupt", [ctrl_c, subprocess.Popen.terminate])
def test_signal_ends_a_running_mirror_with_0(
    brokers: tuple[Broker, Broker],
    command: list[str],
    interrupt: Callable[[subprocess.Popen[str]], None],
    texts: Texts,
) -> None:
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout
        phases = []
        for line in process.stdout:
            progress = json.loads(line)
            phases.append(progress["phase"])
            if progress["records"] == RECORDS:
                break
        interrupt(process)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, complaints(err)) == (0, "")
    assert "starting Java and Spark" in phases
    assert phases[-1] == "copying"
    name = "SIGINT" if interrupt is ctrl_c else "SIGTERM"
    texts(line for line in err.splitlines() if " stopping on " in line)
    summary = objects(out)[-1]
    assert (summary["records"], summary["ended"]) == (RECORDS, f"stopped by {name}")
    assert (summary["up_to_date"], summary["lag_records"]) == (True, 0)
    assert copied(brokers[1]) == RECORDS


def test_mirror_with_closed_stdout_exits_with_1(brokers: tuple[Broker, Broker], command: list[str]) -> None:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
    assert (process.returncode, complaints(err)) == (1, "")


def test_unreachable_cluster_is_one_sentence_and_exit_code_1(command: list[str], texts: Texts) -> None:
    command[command.index("--from") + 1] = "127.0.0.1:1"
    run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert run.returncode == 1
    (sentence,) = complaints(run.stderr).splitlines()
    error = {"type": "error", "error": sentence.removeprefix("shoal: "), "exit_code": 1}
    *before, last = objects(run.stdout)
    assert last == error
    assert {each["phase"] for each in before} <= {"checking the clusters"}, "it may take a moment"
    texts(sentence)


def test_unusable_state_directory_is_exit_code_2(command: list[str], texts: Texts) -> None:
    run = subprocess.run(
        [*command, "--once"],
        env={**os.environ, "XDG_STATE_HOME": os.devnull},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert run.returncode == 2
    (sentence,) = run.stderr.splitlines()
    texts(sentence)
    assert "XDG_STATE_HOME" in sentence


def test_missing_topic_is_exit_code_2(command: list[str], texts: Texts) -> None:
    command[command.index("--topics") + 1] = "nonsense"
    run = subprocess.run(
        [*command, "--verbose"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert run.returncode == 2
    traceback, sentence = complaints(run.stderr).split("shoal: ")
    assert traceback.startswith("Traceback")
    *_, last = objects(run.stdout)  # the check of the clusters may take a moment
    assert last == {"type": "error", "error": sentence.strip(), "exit_code": 2}
    texts(sentence)


def test_signal_while_checking_clusters_ends_at_once(command: list[str], texts: Texts) -> None:
    with Broker() as silent:
        silent.faults.add(ApiKey.METADATA, delay_s=60, times=None)
        command[command.index("--from") + 1] = silent.bootstrap
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout
            assert json.loads(process.stdout.readline())["phase"] == "checking the clusters"
            process.terminate()
            out, _ = process.communicate(timeout=10)
    summary = objects(out)[-1]
    assert (process.returncode, summary["type"], summary["records"]) == (0, "summary", 0)
    texts(summary["ended"])
