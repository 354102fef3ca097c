"""The control socket answers its user, and nothing that anybody sends harms the mirror behind it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import stat
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.cli import main
from shoal.errors import ConfigError, Disconnected, ProtocolError
from shoal.mirroring.driver import control_socket
from shoal.mirroring.driver.control_socket import Answer, ControlSocket, ask_mirror
from shoal.timing import Timing
from tests.two_brokers import wait_until


def answer(command: str) -> Answer:
    """Carry out a command of the tests."""
    match command:
        case "status":
            return Answer("copying\nwell", {"lag_records": 5})
        case "refuse":
            raise ConfigError("refuse 'x' is refused")
        case "fail":
            raise RuntimeError("a mistake")
        case "large":
            return Answer("x" * 3_000_000)
        case _:
            return Answer(f"got {command}")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    where = str(tmp_path / "control.sock")
    with ControlSocket(where, answer):
        yield where


@pytest.fixture
def impatient_path(tmp_path: Path) -> Iterator[str]:
    """The path of a socket that waits for clients for a part of a second."""
    where = str(tmp_path / "control.sock")
    with ControlSocket(where, answer, Timing(control_patience_s=0.2)):
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


def test_line_is_answered_in_text(path: str) -> None:
    assert converse(path, b"status\n") == b"copying\nwell\n"


def test_line_with_json_is_answered_by_an_object(path: str) -> None:
    values = json.loads(converse(path, b"--json status\n"))
    assert values == {"type": "control", "ok": True, "text": "copying\nwell", "lag_records": 5}


def test_refused_command_is_an_error(path: str) -> None:
    assert converse(path, b"refuse\n") == b"error: refuse 'x' is refused\n"
    assert json.loads(converse(path, b"--json refuse\n"))["ok"] is False


def test_mistake_in_a_command_is_an_answer(path: str) -> None:
    assert converse(path, b"fail\n") == b"error: the command failed: RuntimeError: a mistake\n"
    assert converse(path, b"status\n")


def test_socket_is_of_mode_0600_and_is_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with ControlSocket(str(path), answer):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert list(tmp_path.iterdir()) == [path]
    assert not path.exists()


def test_process_of_another_user_gets_no_answer(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_socket, "user_of", lambda connection: os.geteuid() + 1)
    assert converse(path, b"status\n") == b""


def test_user_is_that_of_the_process_at_the_other_end(path: str) -> None:
    with connect(path) as connection:
        assert control_socket.user_of(connection) == os.geteuid()


# Hostile input


@pytest.mark.parametrize(
    "sent",
    [b"x" * 100_000, b"x" * 100_000 + b"\n", b"\0" * 5_000, b"\xff" * 4096],
    ids=["no newline", "long line", "zeros", "binary"],
)
def test_long_line_is_refused(path: str, sent: bytes) -> None:
    received = converse(path, sent)
    assert received.startswith(b"error: the command is not one line") or received == b""
    assert converse(path, b"status\n") == b"copying\nwell\n"


@pytest.mark.parametrize("sent", [b"", b"status", b"--json"])
def test_line_without_an_end_is_refused(path: str, sent: bytes) -> None:
    assert b"the command is not one line" in converse(path, sent, ends=True)


def test_bytes_that_are_no_text_come_back_as_escapes(path: str) -> None:
    received = converse(path, b"\xff\x1b[31m\n")
    assert b"\x1b" not in received
    assert received.startswith(b"got ")


def test_line_that_never_ends_is_given_up(impatient_path: str) -> None:
    with connect(impatient_path) as connection:
        connection.sendall(b"sta")
        assert connection.recv(65536).startswith(b"error: the command is not one line")


def test_many_connections_are_turned_away_and_later_ones_served(path: str) -> None:
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connect(path)) for _ in range(8)]
        wait_until(lambda: b"too many connections" in converse(path, b""))
        for each in silent:
            each.close()
        wait_until(lambda: converse(path, b"status\n") == b"copying\nwell\n")


def test_control_prints_that_it_was_turned_away(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(connect(path))
        wait_until(lambda: b"too many connections" in converse(path, b""))
        assert main(["control", path, "status", "--json"]) == 1
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (told["type"], told["ok"], "too many connections" in told["text"]) == ("control", False, True)
    assert all(each in err for each in ("shoal", "connections"))


def test_client_that_does_not_read_is_given_up(impatient_path: str) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(connect(impatient_path)).sendall(b"large\n")
        wait_until(lambda: converse(impatient_path, b"status\n") == b"copying\nwell\n")


def test_reset_connections_harm_nothing(path: str) -> None:
    for _ in range(50):
        connection = connect(path)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(b"status\n")
        connection.close()
    wait_until(lambda: converse(path, b"status\n") == b"copying\nwell\n")


# The path


def test_path_of_a_running_mirror_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match=r"another.*mirror"):
        ControlSocket(path, answer)
    assert converse(path, b"status\n")


def test_socket_of_a_killed_mirror_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "control.sock")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
    with ControlSocket(path, answer):
        assert converse(path, b"status\n") == b"copying\nwell\n"


def test_file_at_the_path_stays(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    path.write_text("precious")
    with pytest.raises(ConfigError, match=r"socket.*user"):
        ControlSocket(str(path), answer)
    assert path.read_text() == "precious"


@pytest.mark.parametrize("name", ["missing/control.sock", "x" * 300])
def test_path_that_cannot_be_used_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="control"):
        ControlSocket(str(tmp_path / name), answer)


def test_socket_of_a_successor_stays_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with ControlSocket(str(path), answer):
        path.unlink()
        with ControlSocket(str(path), answer):
            pass
        path.touch()
    assert path.exists()


# The client, and `shoal control`


def test_client_reads_the_answer(path: str) -> None:
    assert ask_mirror(path, "status")["lag_records"] == 5


def test_client_reports_that_no_mirror_listens(tmp_path: Path) -> None:
    with pytest.raises(Disconnected, match="no mirror answers"):
        ask_mirror(str(tmp_path / "none"), "status")


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
    monkeypatch.setattr(control_socket, "user_of", lambda connection: os.geteuid() + 1)
    with pytest.raises(ConfigError, match=r"belongs.*another"):
        ask_mirror(path, "status")


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\n", b"[]\n", b"{}\n", b"\xff\n"])
def test_client_refuses_other_servers(tmp_path: Path, sent: bytes) -> None:
    path = str(tmp_path / "other.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()

        def serve() -> None:
            other, _ = listening.accept()
            with other:
                other.recv(100)
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
    assert main(["control", path, "limit", "50m", r"orders\..*"]) == 0
    assert capsys.readouterr().out == "got limit 50m orders\\..*\n"


def test_verb_with_json_prints_the_object(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["control", path, "status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lag_records"] == 5


def test_verb_without_a_mirror_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["control", str(tmp_path / "none"), "status"]) == 1
    assert "no mirror answers" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["puase"], ["pause", "a b"], ["pause", ""], ["pause", "a\nstop"], []],
)
def test_wrong_command_line_is_refused(
    path: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["control", path, *arguments]) == 2
    assert capsys.readouterr().err.startswith("shoal: ")
