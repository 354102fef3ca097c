"""The control socket answers its user, and nothing that a client sends harms the mirror behind it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import re
import shutil
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from shoal.cli import main
from shoal.cli.control import ask_mirror
from shoal.errors import ConfigError, ProtocolError
from shoal.mirroring.monitoring.door import Answer, CommandAnswer, Door
from shoal.net.address import Address
from shoal.timing import DEFAULT_TIMING, Timing
from tests.world.waiting import wait_until

STATUS = b"POST /status HTTP/1.0\r\n\r\n"


def answer(command: str, arguments: Mapping[str, str]) -> CommandAnswer:
    """Carry out a command of the tests."""
    match command:
        case "status":
            return CommandAnswer("copying\nwell", {"lag_records": 5})
        case "refuse":
            raise ConfigError("refuse 'x' is refused")
        case "fail":
            raise RuntimeError("a mistake")
        case "large":
            return CommandAnswer("x" * 3_000_000)
        case _:
            given = ", ".join(f"{name} {value}" for name, value in arguments.items())
            return CommandAnswer(f"got {command}: {given}")


@contextlib.contextmanager
def listening(path: str, timing: Timing = DEFAULT_TIMING) -> Iterator[str]:
    door = Door(timing=timing)
    door.listen_on_socket(path, {"/state.json": lambda: Answer(b"{}")}, answer)
    with door:
        yield path


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    with listening(str(tmp_path / "control.sock")) as where:
        yield where


@pytest.fixture
def impatient_path(tmp_path: Path) -> Iterator[str]:
    """The path of a socket that waits for clients for a part of a second."""
    timing = Timing(http_peer_s=0.2, http_request_s=0.5)
    with listening(str(tmp_path / "control.sock"), timing) as where:
        yield where


def connect(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    connection.settimeout(30)
    return connection


def converse(path: str, sent: bytes, *, ends: bool = False) -> bytes:
    with connect(path) as connection:
        with contextlib.suppress(OSError):  # the mirror may have hung up
            connection.sendall(sent)
            if ends:
                connection.shutdown(socket.SHUT_WR)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while more := connection.recv(65536):
                received += more
        return received


def is_well(path: str) -> bool:
    return converse(path, STATUS).endswith(b"\r\n\r\ncopying\nwell\n")


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (b"POST /limit?bytes=50m HTTP/1.0\r\n\r\n", b"got limit: bytes 50m\n"),
        (b"POST /pause HTTP/1.0\r\nContent-Length: 14\r\n\r\ntopics=logs%2E", b"got pause: topics logs.\n"),
        (b"POST /pause?topics= HTTP/1.0\r\n\r\n", b"got pause: topics \n"),
        (b"POST / HTTP/1.0\r\n\r\n", b"got : \n"),
    ],
)
def test_arguments_come_in_the_query_or_as_a_form(path: str, request_: bytes, text: bytes) -> None:
    assert converse(path, request_).endswith(b"\r\n\r\n" + text)


def test_refused_command_has_another_status(path: str) -> None:
    received = converse(path, b"POST /refuse HTTP/1.0\r\n\r\n")
    assert received.startswith(b"HTTP/1.0 409 ")
    assert received.endswith(b"refuse 'x' is refused\n")


def test_mistake_in_a_command_is_an_answer(path: str) -> None:
    received = converse(path, b"POST /fail HTTP/1.0\r\n\r\n")
    assert received.endswith(b"\r\n\r\nthe command failed: RuntimeError: a mistake\n")
    assert is_well(path)


def test_socket_answers_get_requests_without_a_token(path: str) -> None:
    assert converse(path, b"GET /state.json HTTP/1.0\r\nHost: anything\r\n\r\n").endswith(b"\r\n\r\n{}")


def test_address_takes_no_command(path: str) -> None:
    door = Door()
    address = door.listen("look", Address("127.0.0.1", 0), {})
    with door, socket.create_connection(address, timeout=10) as connection:
        connection.sendall(STATUS)
        assert connection.recv(12) == b"HTTP/1.0 501"


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_curl_sends_commands(path: str) -> None:
    curl = ["curl", "--silent", "--unix-socket", path, "http://shoal/pause", "--data-urlencode"]
    done = subprocess.run([*curl, r"topics=logs\..*+&"], capture_output=True, check=True, timeout=60)
    assert done.stdout == b"got pause: topics logs\\..*+&\n"


def test_socket_is_of_mode_0600_and_is_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with listening(str(path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert list(tmp_path.iterdir()) == [path]
    assert not path.exists()


def test_process_of_another_user_gets_no_answer(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.mirroring.monitoring.door.door.user_of", lambda _: os.geteuid() + 1)
    assert converse(path, STATUS) == b""


# Hostile input


def hostile_lines(count: int) -> Iterator[bytes]:
    """Return what no client sends: noise, halves of requests, and requests that lie about themselves."""
    random_ = random.Random(33)
    requests = [
        b"POST /status HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % size for size in (-1, 10**9, 5000, 10**40)
    ]
    requests += [
        b"POST /status HTTP/1.0\r\nContent-Length: x\r\n\r\n",
        b"POST /" + b"x" * 70_000 + b" HTTP/1.0\r\n\r\n",
        b"GET /state.json HTTP/9.9\r\n\r\n",
        b"GET http://[::1 HTTP/1.0\r\n\r\n",
        b"POST //[ HTTP/1.0\r\n\r\n",
        b"POST /\x1b[31m?\xff=%ff&a=%00 HTTP/1.0\r\n\r\n",
        b"POST /status HTTP/1.0\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"STATUS\r\n\r\n",
        b"--json status\n",
        b"\0" * 5000 + b"\n",
        b"\r\n" * 50,
    ]
    for _ in range(count):
        whole = random_.choice(requests)
        match random_.randrange(3):
            case 0:
                yield random_.randbytes(random_.randrange(300)) + b"\n"
            case 1:
                yield whole[: random_.randrange(len(whole) + 1)]
            case _:
                yield whole


def test_thousand_hostile_lines_harm_nothing(path: str, capfd: pytest.CaptureFixture[str]) -> None:
    before = threading.active_count()
    for sent in hostile_lines(1000):
        received = converse(path, sent, ends=True)
        assert b"\x1b" not in received
        assert b"Traceback" not in received
    assert is_well(path)
    wait_until(lambda: threading.active_count() <= before + 1)
    out, err = capfd.readouterr()
    assert out == ""
    assert not re.search("Traceback|Error|shoal", err)  # other tests may have clients that print


def test_form_that_is_too_long_is_refused(path: str) -> None:
    received = converse(path, b"POST /pause HTTP/1.0\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000)
    assert received.startswith(b"HTTP/1.0 413 ")


def test_chunked_form_is_refused_and_no_command_without_arguments(path: str) -> None:
    form = b"POST /resume HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n8\r\ntopics=a\r\n0\r\n\r\n"
    received = converse(path, form)
    assert received.startswith(b"HTTP/1.0 411 ")


def test_bytes_that_are_no_text_come_back_as_escapes(path: str) -> None:
    received = converse(path, b"POST /pause?topics=%1b[31m%ff HTTP/1.0\r\n\r\n")
    assert b"\x1b" not in received
    assert rb"topics \x1b[31m" in received


@pytest.mark.parametrize("sent", [b"POST /sta", b"POST /pause HTTP/1.0\r\nContent-Length: 9\r\n\r\ntop"])
def test_request_that_never_ends_is_given_up(impatient_path: str, sent: bytes) -> None:
    with connect(impatient_path) as connection:
        connection.sendall(sent)
        assert b"got" not in connection.recv(65536)


def test_client_that_does_not_read_is_given_up(impatient_path: str) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(80):
            stack.enter_context(connect(impatient_path)).sendall(b"POST /large HTTP/1.0\r\n\r\n")
        wait_until(lambda: is_well(impatient_path))


# The path


def test_path_of_a_running_mirror_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match=r"another.*mirror"), listening(path):
        pass
    assert is_well(path)


def test_socket_of_a_killed_mirror_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "control.sock")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
    with listening(path):
        assert is_well(path)


def test_file_at_the_path_stays(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    path.write_text("precious")
    with pytest.raises(ConfigError, match=r"socket.*user"), listening(str(path)):
        pass
    assert path.read_text() == "precious"


@pytest.mark.parametrize("name", ["missing/control.sock", "x" * 108, "x" * 300])
def test_path_that_cannot_be_used_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="control"), listening(str(tmp_path / name)):
        pass


def test_socket_of_a_successor_stays_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with listening(str(path)):
        path.unlink()
        with listening(str(path)):
            pass
        path.touch()
    assert path.exists()


# The client, and `shoal control`


def test_socket_that_this_user_may_not_open_is_another_user_s(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed(socket.socket):
        def connect(self, address: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "socket", Closed)
    with pytest.raises(ConfigError, match=r"belongs.*another"):
        ask_mirror(path, "status")


def test_client_refuses_a_listener_of_another_user(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.cli.control.user_of", lambda connection: os.geteuid() + 1)
    with pytest.raises(ConfigError, match=r"belongs.*another"):
        ask_mirror(path, "status")


@pytest.mark.parametrize(
    "sent", [b"hello\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n[]\n", b"{}\n", b"\xff\n"]
)
def test_client_refuses_other_servers(tmp_path: Path, sent: bytes) -> None:
    path = str(tmp_path / "other.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()

        def serve() -> None:
            other, _ = listening.accept()
            with other:
                other.recv(1000)
                other.sendall(sent)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(ProtocolError, match=r"answer.*mirror"):
            ask_mirror(path, "status")
        thread.join()


def test_verb_prints_the_answer(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["control", path, "status"]) == 0
    assert capsys.readouterr() == ("copying\nwell\n", "")


def test_verb_passes_arguments_on(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["control", path, "pause", r"orders\..*"]) == 0
    assert capsys.readouterr().out == "got pause: topics orders\\..*\n"
    assert main(["control", path, "continue", "audit", "destination-loss"]) == 0
    assert capsys.readouterr().out == "got continue: topic audit, kind destination-loss\n"


def test_verb_with_json_prints_the_object(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["control", path, "status", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values == {"type": "control", "ok": True, "text": "copying\nwell", "lag_records": 5}


def test_verb_without_a_mirror_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["control", str(tmp_path / "none"), "status"]) == 1
    assert "no mirror answers" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["puase"], ["limit", "5m", "logs"], ["status", "all"], []])
def test_wrong_command_line_is_refused(
    path: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["control", path, *arguments]) == 2
    assert capsys.readouterr().err.startswith("shoal: ")
