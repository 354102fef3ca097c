"""A principal without ACLs at a real cluster with logins: what the verbs print, and whether it is enough."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType
from cryptography import x509
from cryptography.x509.oid import NameOID

from rig.cluster import java_properties
from rig.jars import tool_command
from rig.load import create_topic
from rig.locked import LockedKafka, jaas
from rig.read import digest_topic
from rig.shoal import Shoal
from rig.wait import wait_until
from tests.integration.shared_spark import shoal

pytestmark = pytest.mark.timeout(900)

RENAME = ("--rename", r"(.*)=copy.\1")


@pytest.fixture
def kafka(locked_cluster: LockedKafka) -> LockedKafka:
    locked_cluster.forbid_everything("bob")
    return locked_cluster


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


def printed_commands(sentence: str) -> list[str]:
    """Return the commands at the end of a sentence."""
    _, found, commands = sentence.strip().partition("s an administrator: ")
    assert found, sentence
    return commands.split(" && ")


def grant(kafka: LockedKafka, commands: list[str], directory: Path) -> None:
    """Run the printed commands with Kafka's own tool, as an administrator would."""
    for side in ("source", "destination"):
        login(kafka, "alice", directory / f"{side}-admin.properties")
    tool = directory / "kafka-acls.sh"
    administer = shlex.join(tool_command("org.apache.kafka.tools.AclCommand"))
    tool.write_text(f'#!/bin/sh\nexec {administer} "$@"\n')
    tool.chmod(0o755)
    path = {"PATH": f"{directory}:{os.environ['PATH']}", "PRINCIPAL": "User:bob"}
    for command in commands:
        run = subprocess.run(
            ["sh", "-c", command], env={**os.environ, **path}, cwd=directory, capture_output=True, text=True
        )
        assert re.search("Adding ACLs|already exists", run.stdout), run.stdout + run.stderr


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


def test_dry_run_names_each_hidden_topic_and_the_acls_that_this_principal_lacks(
    kafka: LockedKafka, tmp_path: Path
) -> None:
    for topic in ("seen", "hidden"):
        load(kafka, topic)
    kafka.allow("bob", ResourceType.TOPIC, "seen", AclOperation.READ, AclOperation.DESCRIBE_CONFIGS)
    code, out, err = bob(kafka, tmp_path, "mirror", "seen,hidden", "--dry-run", "--json")
    assert code == 2, err
    found = json.loads(out)
    assert any("topic hidden of" in each for each in found["warnings"]), found
    assert "hidden" in {each["resource"] for each in found["missing_acls"]}
    assert any("--topic hidden" in each for each in found["acl_commands"])


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


def test_read_taken_away_has_the_command_that_lets_the_mirror_continue(
    kafka: LockedKafka, tmp_path: Path
) -> None:
    topic, group = "taken.away", "group-of-taken"
    load(kafka, topic)
    allow_all_but_the_group(kafka, topic)
    kafka.allow("bob", ResourceType.GROUP, group, AclOperation.READ)
    file = login(kafka, "bob", tmp_path / "bob.properties")
    names = "--topics", r"taken\..*", *RENAME, "--group", group
    with Shoal(
        "mirror", "--json", "--from-config", file, "--to-config", file, *names, state=tmp_path
    ) as mirror:
        mirror.wait_for(lambda line: line.get("records") == 10)
        kafka.forbid("bob", ResourceType.TOPIC, topic, AclOperation.READ)
        load_more(kafka, topic)
        line = mirror.wait_for(lambda line: bool(line.get("stopped")))
        reason = line["stopped"][f"{topic}-0"]
        assert all(each in reason for each in ("READ", "topic", str(topic)))
        assert re.search(r"5.*minutes.*SIGUSR1", reason)
        (command,) = printed_commands(reason)
        assert "--command-config source-admin.properties" in command
        assert "--topic taken. --resource-pattern-type prefixed" in command
        grant(kafka, [command], tmp_path)
        mirror.send_signal(signal.SIGUSR1)
        mirror.wait_for(lambda line: line.get("records") == 20 and not line["stopped"])
        mirror.send_signal(signal.SIGTERM)
        mirror.wait()
        assert mirror.exit_code == 0, mirror.stderr
    source, copy = (digest_topic(kafka.cluster.bootstrap, each) for each in (topic, f"copy.{topic}"))
    assert source == copy


def test_cutover_of_a_fresh_principal_has_the_commands_that_it_lacks(
    kafka: LockedKafka, tmp_path: Path
) -> None:
    load(kafka, "moved")
    create_topic(kafka.cluster.bootstrap, "copy.moved", partitions=1)

    def cut() -> str:
        more = "--group", "group-of-moved", "--groups", ".*", "--rehearse", "--allow", "acls"
        code, _, err = bob(kafka, tmp_path, "cutover", "moved", *more, "--timeout", "1")
        assert code in (1, 2), err
        return err.splitlines()[-1]

    sentence = cut()
    assert "topic 'moved' of" in sentence
    assert "authorized" in sentence
    grant(kafka, printed_commands(sentence), tmp_path)
    wait_until(lambda: len(kafka.acls_of("bob")) == 4, "the broker to know the ACLs of the topics")
    sentence = cut()
    assert "gate 'mirror' failed" in sentence
    commands = printed_commands(sentence)
    assert any("--group group-of-moved" in each for each in commands)
    grant(kafka, commands, tmp_path)
    wait_until(lambda: len(kafka.acls_of("bob")) >= 5, "the broker to know the ACL of the group")
    sentence = cut()  # no mirror runs
    assert re.search(r"'mirror'.*within", sentence)
    assert "AUTHORIZATION" not in sentence


SUBJECT = x509.Name(
    [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example, Ltd"),
        x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "data + 1"),
        x509.NameAttribute(NameOID.COMMON_NAME, "mirror"),
    ]
)


def certificate_login(kafka: LockedKafka, directory: Path) -> dict[str, str]:
    store = kafka.authority.issue("mirror", subject=SUBJECT).write_pem(directory / "mirror.pem")
    return {
        "bootstrap.servers": kafka.cluster.listener("MUTUAL"),
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(kafka.directory / "ca.pem"),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
    }


def token_login(kafka: LockedKafka, directory: Path) -> dict[str, str]:
    now = int(time.time())
    parts = {"alg": "none"}, {"sub": "mirror-of-orders", "iat": now, "exp": now + 3600}
    encoded = (base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts)
    token = directory / "token"
    token.write_text(f"{'.'.join(encoded)}.")
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    return {
        "bootstrap.servers": kafka.cluster.listener("OAUTH"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        "sasl.jaas.config": f"{module} required;",
    }


@pytest.mark.parametrize(
    ("login_of", "principal"),
    [
        (certificate_login, r"User:CN=mirror,OU=data \+ 1,O=Example\, Ltd"),
        (token_login, "User:mirror-of-orders"),
    ],
    ids=["certificate", "token"],
)
def test_dry_run_names_the_principal_that_the_broker_sees(
    kafka: LockedKafka,
    tmp_path: Path,
    login_of: Callable[[LockedKafka, Path], dict[str, str]],
    principal: str,
) -> None:
    topic = f"of-{login_of.__name__}"
    load(kafka, topic)
    create_topic(kafka.cluster.bootstrap, f"copy.{topic}", partitions=1)
    file = tmp_path / "mirror.properties"
    file.write_text(java_properties(login_of(kafka, tmp_path)))
    file.chmod(0o600)

    between = "--from-config", str(file), "--to-config", str(file)
    run = shoal("mirror", *between, "--topics", topic, *RENAME, "--dry-run", state=tmp_path)
    assert f"\n  PRINCIPAL={shlex.quote(principal)}\n" in run.stdout, run.stdout + run.stderr
