"""A mirror's tasks keep settings and receive the secrets, and a real Spark does not show the key."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client.config import ClientConfig
from shoal.client.security import PasswordLogin
from shoal.errors import Stopped
from shoal.mirroring.control import ControlConnection, ControlServer
from shoal.mirroring.credentials import PROCESS_KEY, Credentials, key_in_file
from shoal.mirroring.model.copy_options import CopyOptions, CopySettings, Handling, Rebatch
from shoal.mirroring.model.first_start import FirstStart
from shoal.mirroring.model.incidents import Delivery, IncidentKind
from shoal.mirroring.task import task as copying
from shoal.records import Codec
from shoal.spark.copy_task import ControlAddress, CopyTask
from shoal.spark.launch.session import spark_context
from tests.world.driver import Events

SECRET = "hidden-7f"
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="a" password="{SECRET}";',
}


def config(name: str, **properties: str) -> ClientConfig:
    return ClientConfig.from_properties(name, {"bootstrap.servers": "localhost:1", **properties})[0]


SETTINGS = CopySettings.of(CopyOptions(), config("source", **LOGIN), config("destination"), "group")


def letter() -> str:
    return Credentials.of(SETTINGS.source).seal(PROCESS_KEY)


@pytest.fixture
def address() -> Iterator[ControlAddress]:
    server = ControlServer("127.0.0.1", "token", Events(), letter())
    server.request_stop()
    yield ControlAddress(*server.address, "token", key=PROCESS_KEY)
    server.close()


def settings_in_task(task: CopyTask, monkeypatch: pytest.MonkeyPatch) -> CopySettings:
    """Send a task to another process, and run it there; return the settings that it copies with."""
    seen: list[CopySettings] = []
    monkeypatch.setattr(copying, "follow_documents", lambda settings, control: seen.append(settings))
    sent = pickle.dumps(task)
    assert SECRET.encode() not in sent
    pickle.loads(sent)([0])
    return seen[0]


def test_task_fetches_the_secrets_of_each_cluster_from_its_driver(
    address: ControlAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = CopyTask.of(SETTINGS, address)
    assert task.settings.source.security is None
    settings = settings_in_task(task, monkeypatch)
    assert settings.source.security is not None
    assert isinstance(settings.source.security.login, PasswordLogin)
    assert settings.source.security.login.password == SECRET
    assert settings.destination.security is None


def test_copy_task_that_is_sent_keeps_all_settings() -> None:
    options = CopyOptions(
        delivery=Delivery.AT_LEAST_ONCE,
        continue_after=frozenset({IncidentKind.SOURCE_RESET, IncidentKind.SEND_FAILURE}),
        multi_batch=False,
        rebatch=Rebatch(1_000, Codec.ZSTD, everything=True),
        keep_append_time=True,
        handling=Handling("a:B", None, True, {"x": "1"}, {}),
    )
    first_start = FirstStart(1, (("orders", None),))
    settings = CopySettings.of(
        options, config("source"), config("destination"), "group", first_start=first_start
    )
    task = CopyTask.of(settings, ControlAddress("localhost", 1, "token"))
    assert pickle.loads(pickle.dumps(task)).settings == settings


def test_token_without_the_key_opens_no_credentials(address: ControlAddress) -> None:
    with ControlConnection((address.host, address.port), address.token) as control:
        sealed = control.sealed_credentials
    assert sealed
    assert SECRET not in sealed
    another = Credentials({}).seal("A" * 43 + "=")
    for text, key in ((sealed, "A" * 43 + "="), (another, PROCESS_KEY), ("", PROCESS_KEY)):
        with pytest.raises(Stopped, match="task"):
            Credentials.unseal(text, key)


def test_local_tasks_open_credentials_with_a_key_outside_of_spark(
    address: ControlAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with key_in_file(tmp_path) as file:
        by_file = ControlAddress(address.host, address.port, address.token, key=file)
        task = CopyTask.of(SETTINGS, by_file)
        assert PROCESS_KEY.encode() not in pickle.dumps(task)
        security = settings_in_task(task, monkeypatch).source.security
    assert security is not None
    assert isinstance(security.login, PasswordLogin)
    assert security.login.password == SECRET


def test_key_file_is_private(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch()
    (tmp_path / "key-of-tasks").symlink_to(elsewhere)
    with key_in_file(tmp_path) as file:
        assert (file.stat().st_mode & 0o777, file.read_text()) == (0o600, PROCESS_KEY)
        assert not file.is_symlink()
        if os.getuid() == 0:
            read = f"import os, io; os.setuid(65534); open({str(file)!r})"
            thief = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, check=False)
            assert "PermissionError" in thief.stderr
    assert elsewhere.read_text() == ""
    assert not file.exists()
    with pytest.raises(Stopped, match="task"):
        Credentials.unseal(letter(), file)


@pytest.mark.integration
def test_spark_has_neither_secrets_nor_key_in_its_files(address: ControlAddress, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    logged = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": str(tmp_path / "events"),
    }
    context = spark_context("local[1]", logged, tmp_path / "spark.log", tmp_path)
    try:
        # Its driver has stopped, so the task opens the credentials and ends.
        context.parallelize([0], 1).mapPartitions(CopyTask.of(SETTINGS, address)).collect()
        conf = str(context.getConf().getAll())
    finally:
        context.stop()
    files = [each for each in tmp_path.rglob("*") if each.is_file() and each.suffix != ".classes"]
    assert any("events_1" in each.name for each in files)
    for text in (conf, *(each.read_bytes().decode("latin-1") for each in files)):
        assert PROCESS_KEY not in text
        assert SECRET not in text
