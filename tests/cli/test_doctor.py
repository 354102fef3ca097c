"""``shoal doctor`` between embedded brokers: good news, bad news, and what was not looked at."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.cli import main
from shoal.mirroring.model.checkup import Check, Verdict
from shoal_broker import Broker
from tests.client.test_reachable import UNKNOWN, advertise
from tests.snapshots import Texts
from tests.spark.test_java import make_java

GOOD, WARNING, WRONG, NOT_LOOKED_AT = (each.value for each in Verdict)


class Patient:
    """Two brokers, a topic at the source, and the command."""

    def __init__(self, source: Broker, destination: Broker, capsys: pytest.CaptureFixture[str]) -> None:
        self.source, self.destination, self._capsys = source, destination, capsys
        source.create_topic("orders", partitions=2)

    def run(self, *arguments: str) -> tuple[int, str]:
        clusters = ("--from", self.source.bootstrap, "--to", self.destination.bootstrap)
        code = main(["doctor", "--topics", "orders", *clusters, *arguments])
        return code, self._capsys.readouterr().out

    def findings(self, *arguments: str, code: int) -> list[dict[str, Any]]:
        found_code, out = self.run("--json", *arguments)
        assert found_code == code, out
        (line,) = out.splitlines()
        found = json.loads(line)
        assert found["type"] == "doctor"
        for verdict in Verdict:
            of_verdict = [each for each in found["findings"] if each["verdict"] == verdict.value]
            assert found[verdict.value.replace(" ", "_")] == len(of_verdict)
        findings: list[dict[str, Any]] = found["findings"]
        return findings


def verdicts(findings: list[dict[str, Any]], subject: str) -> dict[str, str]:
    """Return the worst verdict of each check of a subject."""
    order = [GOOD, NOT_LOOKED_AT, WARNING, WRONG]
    found: dict[str, str] = {}
    for each in findings:
        if each["subject"] == subject:
            found[each["check"]] = max(found.get(each["check"], GOOD), each["verdict"], key=order.index)
    return found


def text_of(findings: list[dict[str, Any]], check: Check, verdict: str) -> str:
    return next(
        f"{each['text']} {each['remedy']}"
        for each in findings
        if (each["check"], each["verdict"]) == (check.value, verdict)
    )


@pytest.fixture
def patient(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Patient]:
    make_java(tmp_path / "java", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with Broker(cluster_id="source") as source, Broker(cluster_id="destination") as destination:
        yield Patient(source, destination, capsys)


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Return a port that refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_every_check_has_a_finding_and_the_exit_code_is_0(patient: Patient) -> None:
    findings = patient.findings(code=0)
    assert {each["check"] for each in findings} == {each.value for each in Check}
    for side in ("source", "destination"):
        found = verdicts(findings, side)
        # The embedded broker has no quorum, and so does not report its clock.
        assert found.pop(Check.CLOCK.value) == NOT_LOOKED_AT
        assert set(found.values()) == {GOOD}
    # Nor does it report ACLs, which it does not have.
    assert verdicts(findings, "mirror") == {"topics": GOOD, "group": GOOD, "ACLs": NOT_LOOKED_AT}
    assert set(verdicts(findings, "machine").values()) == {GOOD}


def test_doctor_changes_nothing(patient: Patient, tmp_path: Path) -> None:
    patient.run()
    assert patient.destination.topics.get("orders") is None
    assert not (tmp_path / "state").exists()


def test_text_has_a_heading_for_each_subject_and_a_count(patient: Patient, texts: Texts) -> None:
    code, out = patient.run()
    assert code == 0
    lines = out.splitlines()
    headings = [line for line in lines if not line.startswith(" ")]
    assert headings[:4] == [
        f"source {patient.source.bootstrap}",
        f"destination {patient.destination.bootstrap}",
        "mirror",
        "machine",
    ]
    texts(headings[4])


def test_closed_port_is_wrong_and_the_checks_behind_it_are_not_looked_at(
    patient: Patient, closed_port: int, texts: Texts
) -> None:
    findings = patient.findings("--to", f"127.0.0.1:{closed_port}", code=1)
    found = verdicts(findings, "destination")
    assert (found["name"], found["connection"]) == (GOOD, WRONG)
    assert {found[each.value] for each in (Check.TLS, Check.LOGIN, Check.VERSIONS, Check.CLOCK)} == {
        NOT_LOOKED_AT
    }
    assert set(verdicts(findings, "mirror").values()) == {NOT_LOOKED_AT}
    texts(text_of(findings, Check.CONNECTION, WRONG))


def test_listener_that_ends_the_login_is_wrong_with_a_remedy(patient: Patient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closing = threading.Thread(target=_close_all, args=(server,), daemon=True)
        closing.start()
        findings = patient.findings("--from", f"127.0.0.1:{server.getsockname()[1]}", code=1)
    (wrong,) = [each for each in findings if each["verdict"] == WRONG]
    assert wrong["check"] == Check.LOGIN.value
    assert "security.protocol" in wrong["remedy"]


def _close_all(server: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the test has closed the server
        while True:
            server.accept()[0].close()


def test_unknown_name_is_wrong_if_it_is_the_only_one(patient: Patient) -> None:
    findings = patient.findings("--from", "nothing.invalid:9092", code=1)
    assert verdicts(findings, "source")["name"] == WRONG
    assert "'nothing.invalid'" in text_of(findings, Check.NAME, WRONG)
    several = patient.findings("--from", f"nothing.invalid:9092,{patient.source.bootstrap}", code=0)
    assert verdicts(several, "source")["name"] == WARNING


def test_unreachable_advertised_address_is_wrong(patient: Patient) -> None:
    advertise(patient.source, UNKNOWN)
    findings = patient.findings(code=1)
    found = verdicts(findings, "source")
    assert (found["login"], found["advertised listeners"], found["versions"]) == (GOOD, WRONG, NOT_LOOKED_AT)
    assert "advertised.listeners" in text_of(findings, Check.ADVERTISED, WRONG)


def test_missing_topic_is_wrong(patient: Patient, texts: Texts) -> None:
    findings = patient.findings("--topics", "ordres", code=1)
    assert verdicts(findings, "mirror")["topics"] == WRONG
    texts(text_of(findings, Check.TOPICS, WRONG))


def test_missing_java_is_wrong_and_names_the_extra(
    patient: Patient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, texts: Texts
) -> None:
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("shoal.spark.launch.java.importlib.util.find_spec", lambda name: None)
    findings = patient.findings(code=1)
    texts(text_of(findings, Check.JAVA, WRONG))


def test_old_java_home_is_a_warning(
    patient: Patient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, texts: Texts
) -> None:
    make_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path / "java" / "bin"))
    findings = patient.findings(code=0)
    texts(text_of(findings, Check.JAVA, WARNING))


def test_closed_spark_master_is_wrong(patient: Patient, closed_port: int) -> None:
    findings = patient.findings("--master", f"spark://127.0.0.1:{closed_port}", code=1)
    assert "Connection refused" in text_of(findings, Check.SPARK, WRONG)


def test_other_cluster_managers_are_not_looked_at(patient: Patient) -> None:
    findings = patient.findings("--master", "yarn", code=0)
    assert "'yarn'" in text_of(findings, Check.SPARK, NOT_LOOKED_AT)


def test_file_in_place_of_the_checkpoint_is_wrong(patient: Patient, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    findings = patient.findings("--checkpoint", str(tmp_path / "file" / "state"), code=1)
    assert "--checkpoint" in text_of(findings, Check.DISK, WRONG)


@pytest.mark.parametrize(("option", "name"), [("--report", "report.html"), ("--control", "orders.sock")])
def test_missing_directory_of_a_file_is_wrong(
    patient: Patient, tmp_path: Path, option: str, name: str, texts: Texts
) -> None:
    file = tmp_path / "missing" / name
    findings = patient.findings(option, str(file), code=1)
    text = text_of(findings, Check.DISK, WRONG)
    texts(text)
    file.parent.mkdir()
    patient.findings(option, str(file), code=0)


def test_options_come_from_the_mirror_s_file(patient: Patient, tmp_path: Path) -> None:
    (tmp_path / "orders.toml").write_text('topics = "nothing"\nrefresh = 10\n')
    code = main(
        [
            *("doctor", "--config", str(tmp_path / "orders.toml"), "--json"),
            *("--from", patient.source.bootstrap, "--to", patient.destination.bootstrap),
        ]
    )
    assert code == 1
