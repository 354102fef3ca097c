"""A log directory that fails goes offline, and the broker stops."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shoal.error_codes import ErrorCode
from shoal.errors import ConfigError
from shoal.protocol.apis import ApiKey
from tests.batches import batch
from tests.broker.storage.directories import fetched_payloads, raising, serving
from tests.broker.wire import PATIENCE_S, Wire


@pytest.fixture(params=["fdatasync", "pwritev"])
def failing_call(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_log_directory_that_fails_goes_offline_and_the_broker_stops(
    data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failing_call: str
) -> None:
    monkeypatch.setattr("shoal_broker.broker._LAST_ANSWERS_S", PATIENCE_S)
    halted = threading.Event()
    with serving(data, log_flush_interval_messages="1") as (broker, wire):
        broker.when_halted(halted.set)
        broker.create_topic("topic")
        assert wire.produce("topic", batch([b"kept"])).error_code == ErrorCode.NONE
        with monkeypatch.context() as disk:
            disk.setattr(os, failing_call, raising(errno.EIO))
            assert wire.produce("topic", batch([b"lost"])).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        # The disk seems to work again, but it may have lost writes.
        for _ in range(2):
            assert wire.produce("topic", batch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert wire.fetch("topic").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert wire.commit("group", "topic", 1) == ErrorCode.KAFKA_STORAGE_ERROR
        (partition,) = wire.call(ApiKey.METADATA, 5, topics=None).topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert partition.offline_replicas == [1]
        broker.purgatory.close()  # the last answers are given
        assert halted.wait(PATIENCE_S)
        with pytest.raises(OSError), Wire(broker.bootstrap) as late:  # noqa: PT011
            late.call(ApiKey.METADATA, 1, topics=[])
    assert broker.failure is not None
    assert str(data) in broker.failure
    assert [record.message for record in caplog.records].count(
        f"{broker.failure}. Its partitions are offline, and the broker stops"
    ) == 1
    with pytest.raises(ConfigError, match="Open the directory with a new broker"):
        broker.start()
    assert not (data / ".kafka_cleanshutdown").exists()
    with serving(data) as (_, wire):
        assert [payload.count(b"kept") for _, payload in fetched_payloads(wire)] == [1]


def test_flush_failed_on_a_full_disk_is_final(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(data, log_flush_interval_messages="1") as (broker, wire):
        broker.create_topic("topic")
        with monkeypatch.context() as disk:
            disk.setattr(os, "fdatasync", raising(errno.ENOSPC))
            assert wire.produce("topic", batch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.failure is not None


_WITH_A_BROKEN_DISK = """
import errno, os, sys
def failing(_):
    raise OSError(errno.EIO, os.strerror(errno.EIO))
os.fdatasync = failing
from shoal_broker.cli.broker import main
options = ["--listen", "127.0.0.1:0", "--config", "log.flush.interval.messages=1", "--data", sys.argv[1]]
sys.exit(main(options))
"""


def test_process_with_failed_log_directory_exits_1_with_the_cause(data: Path) -> None:
    command = [sys.executable, "-c", _WITH_A_BROKEN_DISK, str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            with Wire(running.stdout.readline().rsplit(maxsplit=1)[-1]) as wire:
                wire.create_topic("topic")
                assert wire.produce("topic", batch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            _, said = running.communicate(timeout=PATIENCE_S)
        finally:
            running.kill()
    assert running.returncode == 1
    assert said.strip().splitlines()[-1] == (
        f"shoal: log directory {data} failed at topic-0: Input/output error. "
        "Replace the disk, or start with another --data"
    )
    assert "Traceback" not in said
