"""A principal without ACLs at a real cluster with logins: what the verbs print, and whether it is enough."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType

from rig.cluster import java_properties
from rig.jars import class_path, java
from rig.load import create_topic
from rig.locked import LockedKafka, jaas, locked_kafka
from rig.read import digest_topic
from rig.wait import wait_until
from tests.integration.mirror_process import MirrorProcess, close_shared_spark, shoal

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

RENAME = ("--rename", r"(.*)=copy.\1")


@pytest.fixture(scope="module")
def running() -> Iterator[LockedKafka]:
    with locked_kafka() as kafka:
        yield kafka
    close_shared_spark()


@pytest.fixture
def kafka(running: LockedKafka) -> LockedKafka:
    running.forbid_everything("bob")
    return running


def login(kafka: LockedKafka, user: str, file: Path) -> str:
    properties = {
        "bootstrap.servers": kafka.cluster.listener("SASL"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas("PLAIN", user),
    }
    file.write_text(java_properties(properties))
    file.chmod(0o600)
    return str(file)


def load(kafka: LockedKafka, topic: str) -> None:
    create_topic(kafka.cluster.bootstrap, topic, partitions=1)
    load_more(kafka, topic)


def load_more(kafka: LockedKafka, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.cluster.bootstrap})
    for number in range(10):
        producer.produce(topic, f"record {number}")
    assert producer.flush(60) == 0


def bob(kafka: LockedKafka, directory: Path, verb: str, topics: str, *more: str) -> tuple[int, str, str]:
    file = login(kafka, "bob", directory / "bob.properties")
    run = shoal(
        *(verb, "--from-config", file, "--to-config", file, "--topics", topics, *RENAME, *more),
        state=directory,
    )
    return run.returncode, run.stdout, run.stderr


def grant(kafka: LockedKafka, commands: list[str], directory: Path) -> None:
    """Run the printed commands with Kafka's own tool, as an administrator would."""
    for side in ("source", "destination"):
        login(kafka, "alice", directory / f"{side}-admin.properties")
    tool = directory / "kafka-acls.sh"
    tool.write_text(f'#!/bin/sh\nexec {java()} -cp "{class_path()}" org.apache.kafka.tools.AclCommand "$@"\n')
    tool.chmod(0o755)
    path = {"PATH": f"{directory}:{os.environ['PATH']}", "PRINCIPAL": "User:bob"}
    for command in commands:
        run = subprocess.run(
            ["sh", "-c", command], env={**os.environ, **path}, cwd=directory, capture_output=True, text=True
        )
        assert "Adding ACLs" in run.stdout, run.stdout + run.stderr


def test_commands_for_a_fresh_principal_are_enough_for_later_topics(
    kafka: LockedKafka, tmp_path: Path
) -> None:
    load(kafka, "shop.first")
    code, out, err = bob(kafka, tmp_path, "mirror", r"shop\..*", "--dry-run", "--json")
    assert code == 2, err
    plan: dict[str, Any] = json.loads(out)
    commands = plan["acl_commands"]
    assert all("--command-config source-admin" in each or "destination-admin" in each for each in commands)
    assert sum("--topic shop. --resource-pattern-type prefixed" in each for each in commands) == 1
    assert sum("--topic copy.shop. --resource-pattern-type prefixed" in each for each in commands) == 1

    grant(kafka, commands, tmp_path)
    load(kafka, "shop.second")  # the commands were printed before it was there
    wait_until(lambda: len(kafka.acls_of("bob")) > 5, "the broker to know the ACLs")
    code, out, err = bob(kafka, tmp_path, "mirror", r"shop\..*", "--once", "--json")
    assert code == 0, err
    for topic in ("shop.first", "shop.second"):
        source, copy = (digest_topic(kafka.cluster.bootstrap, each) for each in (topic, f"copy.{topic}"))
        assert source == copy


def test_doctor_names_each_hidden_topic_and_the_commands_for_this_principal(
    kafka: LockedKafka, tmp_path: Path
) -> None:
    for topic in ("seen", "hidden"):
        load(kafka, topic)
    kafka.allow("bob", ResourceType.TOPIC, "seen", AclOperation.READ, AclOperation.DESCRIBE_CONFIGS)
    code, out, err = bob(kafka, tmp_path, "doctor", "seen,hidden", "--json")
    assert code == 1, err
    found = json.loads(out)["findings"]
    assert any(each["check"] == "topics" and "topic hidden of" in each["text"] for each in found), found
    (acls,) = (each for each in found if each["check"] == "ACLs" and each["verdict"] == "wrong")
    assert "hidden" in acls["text"]
    assert "kafka-acls.sh --bootstrap-server" in acls["remedy"]
    assert "--allow-principal User:bob" in acls["remedy"]
    assert "--topic hidden" in acls["remedy"]


def allow_all_but_the_group(kafka: LockedKafka, topic: str) -> None:
    operations = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS
    kafka.allow("bob", ResourceType.TOPIC, topic, *operations)
    kafka.allow("bob", ResourceType.TOPIC, f"copy.{topic}", *operations)
    kafka.allow("bob", ResourceType.TOPIC, f"copy.{topic}", AclOperation.WRITE, AclOperation.CREATE)


def test_refused_start_ends_with_2_and_points_to_the_commands(kafka: LockedKafka, tmp_path: Path) -> None:
    load(kafka, "fresh")

    def refusal(topics: str) -> str:
        code, _, err = bob(kafka, tmp_path, "mirror", topics, "--once")
        assert code == 2, err
        sentence = err.splitlines()[-1]
        assert "--dry-run" in sentence
        assert "kafka-acls.sh" in sentence
        assert "User:bob" in sentence
        return sentence

    assert "topic fresh of" in refusal("fresh")
    assert "shows no topics" in refusal("fre.*")
    allow_all_but_the_group(kafka, "fresh")
    create_topic(kafka.cluster.bootstrap, "copy.fresh", partitions=1)
    assert "GROUP_AUTHORIZATION_FAILED" in refusal("fresh")


def test_read_taken_away_names_its_remedy_and_given_back_continues(
    kafka: LockedKafka, tmp_path: Path
) -> None:
    topic, group = "taken", "group-of-taken"
    load(kafka, topic)
    allow_all_but_the_group(kafka, topic)
    kafka.allow("bob", ResourceType.GROUP, group, AclOperation.READ)
    file = login(kafka, "bob", tmp_path / "bob.properties")
    names = "--topics", topic, *RENAME, "--group", group
    with MirrorProcess("--from-config", file, "--to-config", file, *names, state=tmp_path) as mirror:
        mirror.wait_for(lambda line: line.get("records") == 10)
        kafka.forbid("bob", ResourceType.TOPIC, topic, AclOperation.READ)
        load_more(kafka, topic)
        line = mirror.wait_for(lambda line: bool(line.get("stopped")))
        reason = line["stopped"][f"{topic}-0"]
        assert f"allow READ on topic {topic} to User:bob" in reason
        assert "tries again every 5 minutes, and on SIGUSR1" in reason
        assert "--dry-run" in reason
        kafka.allow("bob", ResourceType.TOPIC, topic, AclOperation.READ)
        mirror.send_signal(signal.SIGUSR1)
        mirror.wait_for(lambda line: line.get("records") == 20 and not line["stopped"])
        mirror.send_signal(signal.SIGTERM)
        mirror.wait()
        assert mirror.exit_code == 0, mirror.stderr
    source, copy = (digest_topic(kafka.cluster.bootstrap, each) for each in (topic, f"copy.{topic}"))
    assert source == copy
