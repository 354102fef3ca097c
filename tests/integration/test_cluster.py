"""Locked clusters, mirrored by separate executors: only these get the secrets."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import psutil
import pyspark
import pytest

from rig.cluster import java_properties
from rig.load import load_plain
from rig.locked import PASSWORDS, LockedKafka, jaas
from rig.read import digest_topic
from rig.shoal import Shoal

RECORDS = 1_000


@pytest.fixture(scope="module")
def kafka(locked_cluster: LockedKafka) -> LockedKafka:
    return locked_cluster


def properties_file(path: Path, kafka: LockedKafka, mechanism: str) -> str:
    """Write the properties of a client for the listener that requires TLS and a password."""
    lines = {
        "bootstrap.servers": kafka.cluster.listener("SASLTLS"),
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(kafka.directory / "ca.pem"),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas(mechanism, "alice", PASSWORDS["alice"]),
    }
    path.write_text(java_properties(lines))
    path.chmod(0o600)
    return str(path)


@pytest.mark.timeout(900)
def test_executors_log_in_to_locked_clusters_without_visible_secrets(
    kafka: LockedKafka, topic: str, tmp_path: Path
) -> None:
    load_plain(kafka.cluster.bootstrap, topic, "none", 900, RECORDS * 1000, partitions=2)
    source = properties_file(tmp_path / "source.properties", kafka, "SCRAM-SHA-512")
    destination = properties_file(tmp_path / "destination.properties", kafka, "PLAIN")
    state, events, checkpoint = tmp_path / "state", tmp_path / "events", tmp_path / "checkpoint"
    events.mkdir()
    options = [
        *("--from-config", source, "--to-config", destination),
        *("--topics", topic, "--rename", r"(.*)=copy.\1"),
        *("--master", "local-cluster[2,1,1024]", "--checkpoint", str(checkpoint)),
        *("--conf", "spark.eventLog.enabled=true", "--conf", "spark.eventLog.compress=false"),
        *("--conf", f"spark.eventLog.dir={events}"),
    ]
    seen = {}
    # Spark writes the logs of such executors into its own directory, which keeps those of other runs.
    work = Path(pyspark.__file__).parent / "work"
    earlier = set(work.glob("app-*"))
    with Shoal("mirror", "--json", *options, state=state) as mirror:
        mirror.wait_for(lambda line: line.get("records", 0) >= RECORDS, timeout_s=400)
        for process in psutil.Process(mirror.process_id).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                seen[f"arguments of {process.pid}"] = " ".join(process.cmdline())
                seen[f"environment of {process.pid}"] = str(process.environ())
        mirror.send_signal(signal.SIGTERM)
        mirror.wait()
        assert mirror.exit_code == 0, mirror.stderr
        seen["stderr"] = mirror.stderr
    copy, original = (digest_topic(kafka.cluster.bootstrap, each) for each in (f"copy.{topic}", topic))
    assert copy == original
    assert sum(each.count for each in copy.values()) == RECORDS

    roots = state, events, checkpoint, *(set(work.glob("app-*")) - earlier)
    files = [each for root in roots for each in root.rglob("*") if each.is_file()]
    seen |= {str(each): each.read_bytes().decode("latin-1") for each in files}
    # The search covers the executors.
    assert sum("CoarseGrainedExecutorBackend" in text for text in seen.values()) >= 2
    assert any("/work/app-" in name and name.endswith("/stderr") for name in seen)
    assert any("SparkListenerJobStart" in text for name, text in seen.items() if str(events) in name)
    secrets = PASSWORDS.values()
    assert {name: secret for name, text in seen.items() for secret in secrets if secret in text} == {}
