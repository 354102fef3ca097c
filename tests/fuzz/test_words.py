"""Input that others may write to shoal: commits of its group, and messages on its control connections."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.client.committed_offsets import Committed
from shoal.client.coordinator import MemberId
from shoal.errors import ConfigError, Stopped
from shoal.mirroring.control import ControlConnection, ControlServer
from shoal.mirroring.model.offset_map import OffsetMap
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity
from shoal.mirroring.model.reports import TaskReport
from tests.fuzz.damage import mutated
from tests.fuzz.effort import bounded, effort
from tests.world.driver import Events
from tests.world.waiting import wait_until

COMMITTED = MirrorPosition(
    10, 7, ProducerIdentity(5, 0), (2, 0), "source-id", None, "rules", OffsetMap.begun_at(2, 0), 2
).to_committed()

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from([-1, 0, 2**31, 2**63, -(2**63) - 1])
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=6,
)


@st.composite
def changed(draw: st.DrawFn, whole: dict[str, Any]) -> dict[str, Any]:
    """Draw an object with some values replaced, whole or in part."""
    values: dict[str, Any] = json.loads(json.dumps(whole))
    for name in draw(st.lists(st.sampled_from(sorted(whole)), min_size=1, max_size=3)):
        value = values.get(name)
        if isinstance(value, list) and value and draw(st.booleans()):
            value[draw(st.integers(0, len(value) - 1))] = draw(JSON)
        elif draw(st.booleans()):
            values[name] = draw(JSON)
        else:
            values.pop(name, None)
    return values


def read_pair(metadata: str) -> None:
    with bounded(len(metadata)), contextlib.suppress(ConfigError):
        pair = MirrorPosition.from_committed(Committed(10, metadata))
        if pair is not None:
            # All of it sooner or later goes into requests, batches and the next commit.
            identity = pair.identity
            struct.pack(">qqh", pair.destination_offset, identity.producer_id, identity.producer_epoch)
            struct.pack(">qqi", *pair.origin, pair.source_leader_epoch)
            struct.pack(">i", identity.sequence(pair.destination_offset))
            for run in pair.plan:
                struct.pack(">qqi", *run)
            assert MirrorPosition.from_committed(pair.to_committed()) == pair


@given(changed(json.loads(COMMITTED.metadata.removeprefix("shoal4"))))
@effort(100)
def test_commit_with_other_values_is_a_position_or_refused(values: dict[str, Any]) -> None:
    read_pair("shoal4" + json.dumps(values))


@given(mutated(COMMITTED.metadata.encode()))
@effort(100)
def test_damaged_commit_is_a_position_none_or_refused(metadata: bytes) -> None:
    read_pair(metadata.decode(errors="replace"))


@given(st.sampled_from(['{"a":', "[", '"\\ud800', "1", "1e", "-", "9"]), st.integers(0, 30_000))
@effort(25)
def test_endlessly_nested_commit_is_refused(piece: str, times: int) -> None:
    read_pair("shoal4" + piece * times)


STATE = {
    "shoal": importlib.metadata.version("shoal"),
    "stop": False,
    "clock_s": 0.0,
    "lease_s": 20.0,
    "membership": ["member-id", 7, "instance-id"],
}


class Impostor:
    """A server that listens on a former driver's address."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.words = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with client, contextlib.suppress(OSError):
                    client.recv(1000)
                    client.sendall(self.words)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture(scope="module")
def impostor() -> Iterator[Impostor]:
    impostor = Impostor()
    yield impostor
    impostor.close()


@pytest.fixture(autouse=True)
def _no_thread_dies(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    died: list[object] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    yield
    assert died == []
    assert capfd.readouterr().err == ""


WORDS = (
    changed(STATE).map(lambda state: json.dumps(state).encode() + b"\n")
    | mutated(json.dumps(STATE).encode() + b"\n")
    | st.builds(
        lambda piece, times: piece * times,
        st.sampled_from([b"[", b'{"a":', b"\xff", b"1"]),
        st.integers(1, 9000),
    )
)


@given(st.booleans(), WORDS)
@effort(50)
def test_task_with_malformed_driver_lines_is_an_orphan(
    impostor: Impostor, begins_well: bool, words: bytes
) -> None:
    impostor.words = json.dumps(STATE).encode() * begins_well + b"\n" * begins_well + words
    try:
        task = ControlConnection(impostor.address, "token")
    except Stopped:
        return
    with task:
        wait_until(lambda: all(each.name != "shoal-control" for each in threading.enumerate()))
        with pytest.raises(Stopped):
            task.check_lease()
        assert isinstance(task.membership(), MemberId)
        task.report(TaskReport())


@pytest.fixture(scope="module")
def driver() -> Iterator[tuple[ControlServer, list[Any]]]:
    """Run a driver, and collect the reports that it receives."""
    heard: list[Any] = []
    server = ControlServer("127.0.0.1", "token", Events(heard.append))
    server.renew(MemberId("member", 1), 3000.0)
    yield server, heard
    server.close()


@given(
    st.booleans(),
    st.lists(
        JSON.map(lambda word: json.dumps(word).encode())
        | st.binary(max_size=20)
        | st.builds(lambda token: json.dumps({"hello": token}).encode(), JSON)
        | st.just(b"[" * 4000),
        max_size=4,
    ),
)
@effort(50)
def test_driver_reads_reports_and_disconnects_all_else(
    driver: tuple[ControlServer, list[Any]], knows_token: bool, words: list[bytes]
) -> None:
    server, heard = driver
    heard.clear()
    lines = [b'{"hello": "token", "job": 0, "attempt": 0, "clock_s": 1.0}', *words] if knows_token else words
    with socket.create_connection(server.address, timeout=5) as stranger, contextlib.suppress(OSError):
        stranger.sendall(b"".join(line + b"\n" for line in lines))
        stranger.shutdown(socket.SHUT_WR)
        while stranger.recv(4096):
            pass
    with ControlConnection(server.address, "token") as task:
        task.check_lease()
    if not knows_token:
        assert heard == []
