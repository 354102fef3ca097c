"""``shoal doctor`` at real Kafka listeners with TLS, logins and ACLs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from rig.load import create_topic
from rig.locked import LockedKafka, jaas
from tests.integration.shared_spark import shoal

pytestmark = pytest.mark.timeout(300)


class Patient:
    """One cluster on both sides, under another name."""

    def __init__(self, kafka: LockedKafka, topic: str, directory: Path) -> None:
        self.kafka, self.topic, self._directory = kafka, topic, directory
        create_topic(kafka.cluster.bootstrap, topic, partitions=1)

    def findings(self, listener: str, code: int, **properties: str) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the worst finding of each subject and check; dots in names of properties are underscores."""
        servers = self.kafka.cluster.listener(listener)
        lines = {"bootstrap.servers": servers, **{k.replace("_", "."): v for k, v in properties.items()}}
        file = self._directory / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        file.chmod(0o600)
        run = shoal(
            *("doctor", "--json", "--topics", self.topic, "--rename", r"(.*)=copy.\1"),
            *("--from-config", str(file), "--to-config", str(file)),
            state=self._directory,
        )
        assert run.returncode == code, run.stdout + run.stderr
        order = ["ok", "not looked at", "warning", "wrong"]
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for each in json.loads(run.stdout)["findings"]:
            key = each["subject"], each["check"]
            if key not in found or order.index(each["verdict"]) > order.index(found[key]["verdict"]):
                found[key] = each
        return found

    def trusting(self) -> dict[str, str]:
        return {"ssl_truststore_type": "PEM", "ssl_truststore_location": str(self.kafka.directory / "ca.pem")}


def login(user: str = "alice", password: str | None = None) -> dict[str, str]:
    mechanism = "SCRAM-SHA-256"
    return {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "sasl_jaas_config": jaas(mechanism, user, password),
    }


@pytest.fixture
def patient(locked_cluster: LockedKafka, topic: str, tmp_path: Path) -> Patient:
    return Patient(locked_cluster, topic, tmp_path)


def test_login_over_tls_is_good(patient: Patient) -> None:
    found = patient.findings("SASLTLS", 0, **patient.trusting(), **login())
    for check in ("name", "connection", "login", "advertised listeners", "versions"):
        assert found["source", check]["verdict"] == "ok", found["source", check]
    assert "SCRAM-SHA-256" in found["source", "login"]["text"]
    # The certificates of the rig are valid for a day.
    assert found["source", "TLS"]["verdict"] == "warning"


def test_missing_acls_are_named_with_the_commands_that_grant_them(patient: Patient) -> None:
    operations = AclOperation.READ, AclOperation.DESCRIBE
    patient.kafka.allow("bob", ResourceType.TOPIC, patient.topic, *operations)
    found = patient.findings("SASLTLS", 1, **patient.trusting(), **login("bob"))
    assert found["source", "login"]["verdict"] == "ok"
    acls = found["mirror", "ACLs"]
    assert acls["verdict"] == "wrong"
    assert all(each in acls["text"] for each in ("DESCRIBE_CONFIGS", str(patient.topic)))
    assert "kafka-acls.sh --bootstrap-server" in acls["remedy"]


def test_wrong_password_is_found_at_the_login(patient: Patient) -> None:
    found = patient.findings("SASLTLS", 1, **patient.trusting(), **login(password="false"))
    assert found["source", "TLS"]["verdict"] == "warning"
    assert found["source", "login"]["verdict"] == "wrong"
    assert "sasl.jaas.config" in found["source", "login"]["remedy"]
    assert found["source", "versions"]["verdict"] == "not looked at"


def test_unknown_authority_is_found_at_tls(patient: Patient) -> None:
    found = patient.findings("SASLTLS", 1, **login())
    assert found["source", "TLS"]["verdict"] == "wrong"
    assert "ssl.truststore.location" in found["source", "TLS"]["text"]
    assert found["source", "login"]["verdict"] == "not looked at"


def test_expired_certificate_is_found_at_tls(patient: Patient) -> None:
    found = patient.findings("EXPIRED", 1, **patient.trusting(), security_protocol="SSL")
    assert "has expired" in found["source", "TLS"]["text"]


def test_administrator_sees_acls_and_the_controller_s_clock(patient: Patient) -> None:
    run = shoal(
        *("doctor", "--json", "--topics", patient.topic, "--rename", r"(.*)=copy.\1"),
        *("--from", patient.kafka.cluster.bootstrap, "--to", patient.kafka.cluster.bootstrap),
        state=patient.kafka.directory,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    findings = json.loads(run.stdout)["findings"]
    clocks = [each for each in findings if each["check"] == "clock"]
    assert [each["verdict"] for each in clocks] == ["ok", "ok"]
    acls = [each for each in findings if each["check"] == "ACLs"]
    assert {each["verdict"] for each in acls} == {"ok", "not looked at"}
