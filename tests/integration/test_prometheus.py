"""A real Prometheus scrapes ``shoal mirror --metrics``, and answers all queries of the dashboard.

If there is no Prometheus, its tests are skipped, but not in CI.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from rig.authority import Authority
from rig.ports import free_port
from rig.shoal import Shoal, serve_gateway
from shoal_broker import Broker
from tests.world.waiting import wait_until

#: Longer than the test's own timeouts, on a busy machine.
pytestmark = pytest.mark.timeout(900)

DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD = DOCS / "grafana-dashboard.json"
PAGE = DOCS / "metrics.md"
RULES = DOCS / "prometheus-alerts.yml"

TIMEOUT_S = 120.0

RECORD = b"x" * 100


class Load:
    """A producer that continues until stopped."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20})
        self._topic = topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._over.wait(0.02):
            self._producer.produce(self._topic, RECORD, partition=number % 2)
            self._producer.poll(0)
            number += 1

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[Broker, Broker]]:
    with Broker() as source, Broker() as destination:
        source.create_topic("orders", partitions=2)
        source.create_topic("idle", partitions=3)
        yield source, destination


@pytest.fixture(scope="module")
def command(brokers: tuple[Broker, Broker]) -> list[str]:
    source, destination = brokers
    return [
        *("--from", source.bootstrap, "--to", destination.bootstrap, "--topics", "orders,idle"),
        *("--master", "local[2]"),
    ]


@pytest.fixture(scope="module")
def mirror(
    brokers: tuple[Broker, Broker], command: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Run a mirror; yield the address of its metrics."""
    address = f"127.0.0.1:{free_port()}"
    state = tmp_path_factory.mktemp("state")
    load = Load(brokers[0], "orders")
    try:
        with Shoal("mirror", "--json", *command, "--metrics", address, state=state) as process:
            process.wait_for(lambda progress: progress["records"] > 0)
            yield address
            load.stop()
            process.send_signal(signal.SIGTERM)
            process.wait()
            assert process.exit_code == 0, process.stderr
    finally:
        load.stop()
    with pytest.raises(OSError, match="refused"):
        scrape(address)


@dataclass(frozen=True)
class Protected:
    """A gateway that serves its metrics to clients with a token."""

    address: str
    token_file: Path


@pytest.fixture(scope="module")
def protected(
    brokers: tuple[Broker, Broker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Protected]:
    token_file = tmp_path_factory.mktemp("protected") / "token"
    token_file.write_text("0123456789abcdef0123456789abcdef\n")
    token_file.chmod(0o600)
    found = Protected(f"127.0.0.1:{free_port()}", token_file)
    options = ["--metrics", found.address, "--http-token-file", str(token_file)]
    with serve_gateway(brokers[0].bootstrap, *options) as gateway:
        yield found
    assert f"metrics at http://{found.address}/metrics" in gateway.stderr


def scrape(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
        text: str = answer.read().decode()
        return text


def values(address: str, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Return the values of a metric by some of its labels, summed over the others."""
    return values_in(scrape(address), name, *labels)


def values_in(text: str, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Return the same of one scrape, for comparisons."""
    sums: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name:
                key = tuple(sample.labels[each] for each in labels)
                sums[key] = sums.get(key, 0.0) + sample.value
    return sums


def test_running_mirror_is_scraped(mirror: str, brokers: tuple[Broker, Broker]) -> None:
    def copied() -> int:
        return sum(brokers[1].log("orders", partition).log_end_offset for partition in range(2))

    before = copied()
    wait_until(lambda: values(mirror, "shoal_records_total", "topic")["orders",] > before + 20, TIMEOUT_S)
    assert values(mirror, "shoal_records_total", "topic")["orders",] <= copied()
    assert values(mirror, "shoal_records_total", "topic")["idle",] == 0
    every = {
        *(("orders", str(number)) for number in range(2)),
        *(("idle", str(number)) for number in range(3)),
    }
    wait_until(lambda: set(values(mirror, "shoal_lag_records", "topic", "partition")) == every, TIMEOUT_S)
    wait_until(
        lambda: len(values(mirror, "shoal_last_commit_timestamp_seconds", "topic", "partition")) >= 2,
        TIMEOUT_S,
    )
    last_commit = min(values(mirror, "shoal_last_commit_timestamp_seconds", "topic", "partition").values())
    assert abs(time.time() - last_commit) < TIMEOUT_S
    once = scrape(mirror)
    fetched, produced = (values_in(once, f"shoal_{name}_bytes_total")[()] for name in ("fetched", "produced"))
    assert fetched >= produced > len(RECORD) * before
    roles = {("driver",), ("jvm",), ("worker",)}
    wait_until(lambda: set(values(mirror, "shoal_process_cpu_seconds_total", "role")) == roles, TIMEOUT_S)
    for role, rss_bytes in values(mirror, "shoal_process_resident_memory_bytes", "role").items():
        assert rss_bytes > 10_000_000, role


# With a real Prometheus


def program(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(f"there is no {name} here; scripts/install-prometheus brings it")
        pytest.skip(f"there is no {name} here; scripts/install-prometheus brings it")
    return found


def test_promtool_accepts_a_scrape(mirror: str) -> None:
    check = subprocess.run(
        [program("promtool"), "check", "metrics"],
        input=scrape(mirror),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (check.returncode, check.stdout + check.stderr) == (0, "")


def test_promtool_accepts_the_documented_configuration(tmp_path: Path) -> None:
    (tmp_path / "shoal.token").write_text("token")
    (tmp_path / "shoal-ca.pem").write_text(Authority().pem)
    (tmp_path / RULES.name).write_text(RULES.read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8").replace("/etc/prometheus", str(tmp_path))
    blocks = re.findall(r"```yaml\n((?:scrape_configs|rule_files):\n.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        file = tmp_path / "example.yml"
        file.write_text(block)
        check = subprocess.run(
            [program("promtool"), "check", "config", str(file)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert check.returncode == 0, check.stdout + check.stderr


@dataclass(frozen=True)
class Alert:
    """
    An alert, and a mirror that has its cause.

    Attributes:
        causes: Values by series, one a minute, in promtool's notation.
        quiet: The values that a mirror without the cause has instead.
        after: The age of the cause when the alert fires.
        labels: The labels of the alert besides those of Prometheus itself.

    """

    causes: dict[str, str]
    quiet: dict[str, str]
    after: str = "10m"
    labels: str = ""


PARTITION_LABELS = '{partition="0",topic="orders"}'
AT_ONCE, EACH_MINUTE = "0x120", "0+60x120"

ALERTS = {
    "MirrorGone": Alert({}, {'shoal_build_info{version="1"}': "1x120"}),
    "MirrorSilent": Alert(
        {"shoal_last_report_timestamp_seconds": AT_ONCE}, {"shoal_last_report_timestamp_seconds": EACH_MINUTE}
    ),
    "MirrorClusterDown": Alert(
        {'shoal_cluster_up{cluster="destination"}': "0x120"},
        {'shoal_cluster_up{cluster="destination"}': "1x120"},
        labels='{cluster="destination"}',
    ),
    "MirrorPartitionStopped": Alert(
        {f"shoal_partition_stopped{PARTITION_LABELS}": "1x120"},
        {f"shoal_partition_stopped{PARTITION_LABELS}": "0x120"},
        labels=PARTITION_LABELS,
    ),
    "MirrorPartitionWaits": Alert(
        {f"shoal_partition_waiting{PARTITION_LABELS}": "1x120"},
        {f"shoal_partition_waiting{PARTITION_LABELS}": "1x5 0x120"},
        labels=PARTITION_LABELS,
    ),
    "MirrorLags": Alert(
        {f"shoal_lag_seconds{PARTITION_LABELS}": "301x120"},
        {f"shoal_lag_seconds{PARTITION_LABELS}": "300x120"},
        labels='{topic="orders"}',
    ),
    "MirrorCommitsNothing": Alert(
        {
            f"shoal_last_commit_timestamp_seconds{PARTITION_LABELS}": AT_ONCE,
            f"shoal_records_total{PARTITION_LABELS}": "0+9x120",
        },
        {
            f"shoal_last_commit_timestamp_seconds{PARTITION_LABELS}": AT_ONCE,
            f"shoal_records_total{PARTITION_LABELS}": "9x120",
        },
        labels=PARTITION_LABELS,
    ),
    "MirrorGroupsStand": Alert(
        {"shoal_consumer_groups_timestamp_seconds": AT_ONCE},
        {"shoal_consumer_groups_timestamp_seconds": EACH_MINUTE},
    ),
    "MirrorGroupsNeverTranslated": Alert(
        {"shoal_consumer_groups": "0x120"},
        {"shoal_consumer_groups": "3x120", "shoal_consumer_groups_timestamp_seconds": EACH_MINUTE},
    ),
    "MirrorGroupsRefused": Alert(
        {'shoal_consumer_group_actions{action="refused"}': "1x120"},
        {'shoal_consumer_group_actions{action="unchanged"}': "1x120"},
        labels='{action="refused"}',
    ),
    "MirrorGroupsNotTranslated": Alert(
        {"shoal_consumer_groups_untranslated": "1x120"},
        {"shoal_consumer_groups_untranslated": "0x120"},
        after="30m",
    ),
    "MirrorSyncRefused": Alert(
        {'shoal_follow_differing{kind="ACLs",synced="true"}': "2x120"},
        {'shoal_follow_differing{kind="ACLs",synced="false"}': "2x120"},
        labels='{kind="ACLs",synced="true"}',
    ),
    "MirrorDrifts": Alert(
        {'shoal_follow_differing{kind="configurations",synced="false"}': "2x120"},
        {'shoal_follow_differing{kind="configurations",synced="false"}': "0x120"},
        after="60m",
        labels='{kind="configurations",synced="false"}',
    ),
    "MirrorComparesNothing": Alert(
        {'shoal_follow_last_comparison_timestamp_seconds{kind="ACLs"}': AT_ONCE},
        {'shoal_follow_last_comparison_timestamp_seconds{kind="ACLs"}': "0+300x120"},
        after="16m",
        labels='{kind="ACLs"}',
    ),
    "MirrorIncident": Alert(
        {'shoal_incidents_total{kind="source-reset"}': "0x4 1x120"},
        {'shoal_incidents_total{kind="source-reset"}': "1x120"},
        labels='{kind="source-reset"}',
    ),
}


def test_each_alert_fires_by_its_cause_alone(tmp_path: Path) -> None:
    rules = RULES.read_text(encoding="utf-8")
    assert re.findall(r"alert: (\w+)", rules) == list(ALERTS)
    (tmp_path / "rules.yml").write_text(rules)
    cases = []
    for name, alert in ALERTS.items():
        labels = dict(re.findall(r'(\w+)="([^"]*)"', alert.labels))
        for series, fired in ((alert.causes, [{"exp_labels": labels}]), (alert.quiet, [])):
            cases.append(
                {
                    "interval": "1m",
                    "input_series": [{"series": each, "values": values} for each, values in series.items()],
                    "alert_rule_test": [{"eval_time": alert.after, "alertname": name, "exp_alerts": fired}],
                }
            )
    # JSON is a subset of YAML.
    (tmp_path / "test.yml").write_text(json.dumps({"rule_files": ["rules.yml"], "tests": cases}))
    check = subprocess.run(
        [program("promtool"), "test", "rules", str(tmp_path / "test.yml")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert check.returncode == 0, check.stdout + check.stderr


class Prometheus:
    """A server that scrapes one target each second."""

    def __init__(self, target: str, directory: Path, **scraping: object) -> None:
        self.target = target
        self._address = f"127.0.0.1:{free_port()}"
        config = directory / "prometheus.yml"
        # A subset of YAML.
        config.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "1s"},
                    "scrape_configs": [
                        {"job_name": "shoal", "static_configs": [{"targets": [target]}], **scraping}
                    ],
                }
            )
        )
        prometheus = program("prometheus")
        self._log = (directory / "log").open("w")
        self._process = subprocess.Popen(
            [
                prometheus,
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={self._address}",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of a response of its API; None as long as it does not answer."""
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
                return None  # Prometheus is starting
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        except OSError:
            return None

    def ask(self, expression: str) -> list[dict[str, Any]]:
        data = self.get("query", query=expression)
        result: list[dict[str, Any]] = data["result"] if data else []
        return result

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.terminate()
        self._process.wait(TIMEOUT_S)
        self._log.close()


@pytest.fixture(scope="module")
def prometheus(mirror: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with Prometheus(mirror, tmp_path_factory.mktemp("prometheus")) as server:
        # A rate needs several scrapes.
        wait_until(lambda: bool(server.ask("rate(shoal_records_total{topic='orders'}[10s]) > 0")), TIMEOUT_S)
        yield server


@pytest.mark.parametrize("basic", [False, pytest.param(True, marks=pytest.mark.long)])
def test_prometheus_scrapes_with_a_token(protected: Protected, tmp_path: Path, basic: bool) -> None:
    def health(**scraping: object) -> dict[str, Any]:
        directory = tmp_path / str(len(list(tmp_path.iterdir())))
        directory.mkdir()
        with Prometheus(protected.address, directory, **scraping) as server:
            found: list[dict[str, Any]] = []

            def has_been_scraped() -> bool:
                targets = server.get("targets")
                found[:] = targets["activeTargets"] if targets else []
                # If a scrape is just ending, the target may already be "down", without its error yet.
                return bool(found) and (found[0]["health"] == "up" or bool(found[0]["lastError"]))

            wait_until(has_been_scraped, TIMEOUT_S)
            if found[0]["health"] == "up":
                wait_until(lambda: bool(server.ask("shoal_build_info")), TIMEOUT_S)
            return found[0]

    token = {"credentials_file": str(protected.token_file)}
    login = {"username": "prometheus", "password_file": str(protected.token_file)}
    with_token = {"basic_auth": login} if basic else {"authorization": token}
    assert health(**with_token)["health"] == "up"
    assert " 401 " in health()["lastError"]


def dashboard_queries() -> Iterator[tuple[str, str]]:
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for query in panel.get("targets", ()):
            yield panel["title"], query["expr"]


#: If there is no problem, these are empty.
MAY_BE_EMPTY = frozenset({"Partitions furthest behind", "Stuck partitions"})

#: Queries for metrics that this mirror does not have: records that an open transaction delays, conversions,
#: which are the gateway's and the embedded broker's, consumer groups, which do not follow, and steering.
NOT_OF_THIS_MIRROR = (
    *("shoal_held_back_records", "shoal_conversion_", "shoal_consumer_group"),
    *("shoal_limit_bytes_per_second", "shoal_topics_paused"),
)


def test_every_panel_of_the_dashboard_has_data(prometheus: Prometheus) -> None:
    variables = {
        "$__rate_interval": "10s",
        "$job": "shoal",
        "$instance": prometheus.target,
        "$topic": "orders|idle",
    }

    def expanded(query: str) -> str:
        for name, value in variables.items():
            query = query.replace(name, value)
        return query

    def has_values(title: str, query: str) -> bool:
        result = prometheus.ask(expanded(query))
        values = [each["value"][1] for each in result]
        may_be_empty = title in MAY_BE_EMPTY or any(name in query for name in NOT_OF_THIS_MIRROR)
        return "NaN" not in values and (bool(values) or may_be_empty)

    left = list(dashboard_queries())
    assert len(left) > 20
    assert {title for title, _ in left} >= MAY_BE_EMPTY
    deadline = time.monotonic() + TIMEOUT_S
    while left and time.monotonic() < deadline:
        left = [(title, query) for title, query in left if not has_values(title, query)]
        time.sleep(0.2)
    assert left == []


def test_variables_of_the_dashboard_find_the_mirror(prometheus: Prometheus) -> None:
    for label, metric, values_expected in (
        ("job", "shoal_build_info", ["shoal"]),
        ("instance", "shoal_build_info", [prometheus.target]),
        ("topic", "shoal_lag_records", ["idle", "orders"]),
    ):
        assert prometheus.get(f"label/{label}/values", **{"match[]": metric}) == values_expected
