"""A mirror's tasks receive the secrets, and a real Spark does not show the key."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.cloudpickle import dumps

from shoal.client.config import ClientConfig
from shoal.errors import Stopped
from shoal.mirroring.control import ControlServer, ask_sealed_credentials
from shoal.mirroring.credentials import PROCESS_KEY, Credentials, key_in_file
from shoal.spark.datasource import keyed_data_source
from shoal.spark.launch.session import spark_session
from shoal.spark.options import ControlAddress, ReadOptions, WriteOptions
from shoal.spark.unlocking import unlocked
from tests.driver_events import Events

SECRET = "hidden-7f"
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="a" password="{SECRET}";',
}
SERVERS = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "topic"}


def sealed_credentials() -> str:
    config, _ = ClientConfig.from_properties("source", {"bootstrap.servers": "localhost:1", **LOGIN})
    return Credentials.of(config).seal(PROCESS_KEY)


@pytest.fixture
def address() -> Iterator[ControlAddress]:
    server = ControlServer("127.0.0.1", "token", Events(), sealed_credentials())
    host, port = server.address
    yield ControlAddress(host, port, "token", locked=True)
    server.close()


def test_task_fetches_the_secrets_of_each_cluster_from_its_driver(address: ControlAddress) -> None:
    read = ReadOptions.parse(
        {**SERVERS, "destination.kafka.bootstrap.servers": "localhost:2", "control": str(address)},
        streaming=False,
        key=PROCESS_KEY,
    )
    assert read.source.security is None
    opened = unlocked(read)
    assert opened.source.security is not None
    assert opened.source.security.password == SECRET
    assert opened.destination is not None
    assert opened.destination.security is None
    write = {"kafka.bootstrap.servers": "localhost:2", "source.kafka.bootstrap.servers": "localhost:1"}
    copy = unlocked(
        WriteOptions.parse({**write, "group": "g", "control": str(address)}, key=PROCESS_KEY)
    ).copy
    assert copy is not None
    assert copy.source.security == opened.source.security
    assert copy.destination.security is None


def test_who_has_the_token_but_not_the_key_has_sealed_credentials(address: ControlAddress) -> None:
    sealed = ask_sealed_credentials((address.host, address.port), address.token)
    assert SECRET not in sealed
    another = Credentials({}).seal("A" * 43 + "=")
    for text, key in ((sealed, "A" * 43 + "="), (another, PROCESS_KEY), ("", PROCESS_KEY)):
        with pytest.raises(Stopped, match="not for this task"):
            Credentials.unseal(text, key)


def test_local_tasks_open_credentials_with_a_key_outside_of_spark(
    address: ControlAddress, tmp_path: Path
) -> None:
    with key_in_file(tmp_path) as file:
        pickled = dumps(keyed_data_source(file))
        assert PROCESS_KEY.encode() not in pickled
        read = ReadOptions.parse({**SERVERS, "control": str(address)}, streaming=False, key=file)
        security = unlocked(read).source.security
    assert security is not None
    assert security.password == SECRET


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
    with pytest.raises(Stopped, match="not for this task"):
        Credentials.unseal(sealed_credentials(), file)


def test_wrong_token_is_refused(address: ControlAddress) -> None:
    with pytest.raises(Stopped, match="gone, or another than ours"):
        ask_sealed_credentials((address.host, address.port), "guessed")


@pytest.mark.integration
def test_spark_plans_have_neither_secrets_nor_key(
    address: ControlAddress, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "events").mkdir()
    logged = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": str(tmp_path / "events"),
    }
    session = spark_session("local[1]", logged, tmp_path / "spark.log", tmp_path)
    try:
        session.dataSource.register(keyed_data_source(PROCESS_KEY))
        rows = session.read.format("shoal").options(**SERVERS, control=str(address)).load()
        rows.explain(True)
        plan = capfd.readouterr().out
        conf = str(session.sparkContext.getConf().getAll())
    finally:
        session.stop()
    assert "BatchScan shoal" in plan
    files = [each for each in tmp_path.rglob("*") if each.is_file() and each.suffix != ".classes"]
    assert any("events_1" in each.name for each in files)
    for text in (plan, conf, *(each.read_bytes().decode("latin-1") for each in files)):
        assert PROCESS_KEY not in text
        assert SECRET not in text
