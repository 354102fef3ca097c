"""All verbs between two clusters with logins, which are one cluster with two names of a topic."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from rig import digest_topic, load_plain
from rig.shoal import Shoal
from tests.integration.shared_spark import shoal

__all__ = ["every_verb"]

RECORDS = 1_000


def every_verb(open_bootstrap: str, logins: tuple[Path, Path], topic: str, directory: Path) -> str:
    """Run a mirror of ``topic`` to ``copy.<topic>``, and beside it ``verify``, ``groups`` and ``cutover``.

    Args:
        open_bootstrap: A listener of the cluster without a login, to load and to compare.
        logins: The properties files of source and destination.
        directory: A directory of the test alone.

    Returns:
        All output and the logs of the state, for a search for secrets.
    """
    load_plain(open_bootstrap, topic, "none", 900, RECORDS * 1000, partitions=1)
    group = f"{topic}-readers"
    consumer = Consumer({"bootstrap.servers": open_bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, RECORDS // 2)], asynchronous=False)
    consumer.close()
    clusters = ("--from-config", str(logins[0]), "--to-config", str(logins[1]))
    topics = (*clusters, "--topics", topic, "--rename", r"(.*)=copy.\1")
    output = []

    def run(verb: str, *more: str) -> str:
        done = shoal(verb, *topics, *more, state=directory / "state")
        output.extend([done.stdout, done.stderr])
        assert done.returncode == 0, (verb, done.stdout, done.stderr)
        return done.stdout

    with Shoal("mirror", "--json", *topics, "--sync=configs", state=directory / "state") as mirror:
        mirror.wait_for(lambda line: line.get("records", 0) >= RECORDS, timeout_s=600)
        run("verify")
        found = json.loads(run("groups", "--groups", group, "--apply", "--json"))
        assert group in json.dumps(found)
        gates = ("--groups", group, "--timeout", "120", "--json")
        run("cutover", *gates, "--certificate", str(directory / "certificate.json"))
        # By then, short sessions have ended several times.
        load_plain(open_bootstrap, topic, "none", 900, 100_000, partitions=1, create=False)
        mirror.wait_for(lambda line: line.get("records", 0) >= RECORDS + 100)
        mirror.send_signal(signal.SIGTERM)
        mirror.wait()
        assert mirror.exit_code == 0, mirror.stderr
    assert digest_topic(open_bootstrap, topic) == digest_topic(open_bootstrap, f"copy.{topic}")
    assert "not answer" not in mirror.stderr
    logs = (each.read_text("latin-1") for each in (directory / "state").rglob("*.log"))
    return "".join([*output, mirror.stdout, mirror.stderr, *logs])
