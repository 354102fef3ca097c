"""``shoal mirror --ui --report`` as an operator runs it: the page during the run, the report after it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from rig.ports import free_port
from rig.shoal import Shoal
from shoal_broker import Broker
from tests.browser import Browser, started_browser

#: Longer than the test's own timeouts, on a busy machine.
pytestmark = pytest.mark.timeout(900)

RECORDS = 3000

TIMEOUT_S = 240.0


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with started_browser(tmp_path_factory.mktemp("profile")) as started:
        started.resize(1280)
        yield started


@pytest.fixture
def brokers() -> Iterator[tuple[Broker, Broker]]:
    with Broker() as source, Broker() as destination:
        source.create_topic("orders", partitions=2)
        load(source)
        yield source, destination


def load(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "zstd", "linger.ms": 50})
    for number in range(RECORDS):
        producer.produce("orders", f"record {number}" * 10, partition=number % 2)
    assert producer.flush(60) == 0


@pytest.fixture
def command(brokers: tuple[Broker, Broker]) -> list[str]:
    source, destination = brokers
    return [
        *("--from", source.bootstrap, "--to", destination.bootstrap, "--topics", "orders"),
        *("--master", "local[2]"),
    ]


def test_mirror_is_shown_stopped_and_reported(
    browser: Browser, brokers: tuple[Broker, Broker], command: list[str], tmp_path: Path
) -> None:
    address, report = f"127.0.0.1:{free_port()}", tmp_path / "report.html"
    with Shoal(
        "mirror", "--json", *command, "--ui", address, "--report", str(report), state=tmp_path
    ) as mirror:
        mirror.wait_for(lambda progress: progress["records"] == RECORDS, timeout_s=TIMEOUT_S)
        browser.open(f"http://{address}/")
        browser.wait_for_text("Up to date", "#state")
        browser.wait_for_text("100.0 %", "#tiles")
        # The driver, Spark's JVM and at least one task, with their usage.
        browser.wait_for(
            lambda browser: {"driver", "Spark's JVM", "task"} <= set(cells(browser, "#processes", 2))
        )
        browser.wait_for(lambda browser: all("ago" in each for each in cells(browser, "#partitions", 8)))
        load(brokers[0])
        mirror.wait_for(lambda progress: progress["records"] == 2 * RECORDS, timeout_s=TIMEOUT_S)
        browser.wait_for_text(f"{RECORDS:,}", "#partitions")
        assert browser.complaints() == []
        mirror.send_signal(signal.SIGTERM)
        summary = mirror.wait()
    assert mirror.exit_code == 0, mirror.stderr
    assert f"page at http://{address}/" in mirror.stderr
    browser.wait_for_text("Not answering", "#state")

    browser.open(report.as_uri())
    browser.wait_for_text("Ended", "#state")
    assert f"{summary['batches']:,}" in browser.text("#headline")
    assert f"{summary['batches']:,} batches with " in browser.text("#conversions")
    seconds = summary["python_cpu_s"] + summary["jvm_cpu_s"]
    assert f"{seconds:.1f}" in browser.text("#tiles")
    history = browser.script("return latest.history")
    assert max(history["jvm_cpu_s"]) > 0.1
    assert max(history["jvm_rss_bytes"]) > 100_000_000
    assert browser.complaints() == []
    assert browser.requests() == [report.as_uri()]


def cells(browser: Browser, table: str, column: int) -> list[str]:
    """Return the texts of a column, counted from 1."""
    return list(
        browser.script(
            "return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText)",
            f"{table} tbody td:nth-child({column})",
        )
    )
