"""
The unix socket on which an operator steers a running mirror, and the client's end of it.

One connection takes one line, and gets one answer: text, or with ``--json`` in front of the command one line
of JSON. The socket has the mode 0600, and each end checks the other's user (``SO_PEERCRED``): it must be its
own, or root.

Nothing that comes in on the socket may harm the mirror. A line has at most 4 KiB, and a client has five
seconds to send it, and five to read the answer. At most eight are served at a time; all others are turned
away at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ...errors import ConfigError, Disconnected, ProtocolError
from ...printable import logger, printable
from ...timing import DEFAULT_TIMING, Timing

__all__ = ["Answer", "ControlSocket", "ask_mirror"]

_JSON = "--json"

#: The longest line: an expression has at most 1,000 characters, a list of them some more.
_LONGEST_LINE = 4096

#: The longest answer that a client reads: the topics of a large cluster.
_LONGEST_ANSWER = 64 * 1024 * 1024

#: A client's patience: a command may wait for others, and match expressions on a busy machine.
_CLIENT_TIMEOUT_S = 60.0

_MOST_CLIENTS = 8

#: The answer to a client that is not served: before its line, so it is text in any case.
_TOO_MANY = b"error: too many connections. Try again\n"

#: A client whose connection does not fit in here gets an error at once.
_BACKLOG = 128

#: The pause if accept fails: when the process has no descriptor left, another connection must end first.
_REFUSED_PAUSE_S = 0.1

#: ``struct ucred``: the process, its user and its group.
_CREDENTIALS = struct.Struct("3i")

_log = logger("shoal.control")


@dataclass(frozen=True, slots=True)
class Answer:
    """
    The answer to a command.

    Attributes:
        text: Lines for a person.
        values: The same for a program.
        ok: Whether the command was carried out.

    """

    text: str
    values: dict[str, Any] = field(default_factory=dict)
    ok: bool = True

    def to_json_object(self) -> dict[str, Any]:
        """Return the answer as JSON."""
        return {"type": "control", "ok": self.ok, "text": printable_text(self.text), **self.values}


def printable_text(text: str) -> str:
    """Return lines with control characters as escapes."""
    return "\n".join(printable(each) for each in text.split("\n"))


class ControlSocket:
    """Listens on a path until the ``with`` block ends."""

    def __init__(self, path: str, answer: Callable[[str], Answer], timing: Timing = DEFAULT_TIMING) -> None:
        """
        Bind the path.

        Args:
            path: The path of the socket; a socket that no process listens on is replaced.
            answer: Carries out a command; called in threads.
            timing: How long a client may take.

        Raises:
            ConfigError: Another process listens there, or the path cannot be used.

        """
        self._path = Path(path)
        self._answer = answer
        self._patience_s = timing.control_patience_s
        self._slots = threading.Semaphore(_MOST_CLIENTS)
        self._is_over = False
        _refuse_taken(path, self._patience_s)
        self._socket = _bind(path)
        self._inode = self._path.stat().st_ino
        self._thread = threading.Thread(target=self._accept, name="shoal-control-socket", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._is_over = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        with contextlib.suppress(OSError):
            if os.lstat(self._path).st_ino == self._inode:
                self._path.unlink()

    def _accept(self) -> None:
        while not self._is_over:
            try:
                client, _ = self._socket.accept()
            except OSError:
                if not self._is_over:
                    time.sleep(_REFUSED_PAUSE_S)
                continue
            if not self._slots.acquire(blocking=False):
                self._turn_away(client)
                continue
            try:
                threading.Thread(
                    target=self._serve_one, args=(client,), name="shoal-command", daemon=True
                ).start()
            except RuntimeError:  # no thread is left: the client has to connect again
                client.close()
                self._slots.release()

    def _turn_away(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.setblocking(False)
            client.send(_TOO_MANY)

    def _serve_one(self, client: socket.socket) -> None:
        try:
            with client, contextlib.suppress(OSError):
                self._serve(client)
        finally:
            self._slots.release()

    def _serve(self, client: socket.socket) -> None:
        if (user := user_of(client)) not in (os.geteuid(), 0):
            _log.warning("a process of user %d is not allowed to use the control socket", user)
            return
        line = _read_line(client, self._patience_s)
        words = line.decode(errors="replace").strip()
        as_json = words == _JSON or words.startswith(_JSON + " ")
        if not line.endswith(b"\n"):
            answer = Answer(f"the command is not one line of at most {_LONGEST_LINE} bytes", ok=False)
        else:
            answer = self._carry_out(words.removeprefix(_JSON).strip() if as_json else words)
        client.settimeout(self._patience_s)
        client.sendall(_encode(answer, as_json=as_json))

    def _carry_out(self, command: str) -> Answer:
        try:
            return self._answer(command)
        except ConfigError as error:
            return Answer(str(error), ok=False)
        except Exception as error:
            # A mistake in a command must not end the mirror, and the operator has to see it.
            _log.exception("the command %r failed", command)
            return Answer(f"the command failed: {type(error).__name__}: {error}", ok=False)


def _encode(answer: Answer, *, as_json: bool) -> bytes:
    if as_json:
        return json.dumps(answer.to_json_object()).encode() + b"\n"
    text = printable_text(answer.text)
    return (text if answer.ok else f"error: {text}").encode(errors="replace") + b"\n"


def _read_line(client: socket.socket, patience_s: float) -> bytes:
    """Read up to the first newline, the longest line, the end, or the time limit."""
    deadline = time.monotonic() + patience_s
    line = b""
    while b"\n" not in line and len(line) < _LONGEST_LINE:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        client.settimeout(left_s)
        try:
            received = client.recv(_LONGEST_LINE - len(line))
        except TimeoutError:
            break
        if not received:
            break
        line += received
    first, newline, _ = line.partition(b"\n")
    return first + newline


def user_of(connection: socket.socket) -> int:
    """Return the user of the process at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(credentials)
    return int(user)


def _refuse_taken(path: str, patience_s: float) -> None:
    """Refuse a path that is in use, or no socket of this user."""
    if not hasattr(socket, "SO_PEERCRED"):
        raise ConfigError(
            "--control needs Linux: this system does not show which user connects. Leave it out"
        )
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        cause = error.strerror or str(error)
        raise ConfigError(f"--control '{path}': {cause}") from error
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        raise ConfigError(f"--control '{path}' exists, and is not a socket of this user. Use another path")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(patience_s)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return  # of a mirror that was killed
        except OSError as error:
            cause = error.strerror or str(error)
            raise ConfigError(f"--control '{path}': {cause}") from error
    raise ConfigError(f"--control '{path}' is in use by another mirror. Use another path")


def _bind(path: str) -> socket.socket:
    """Bind a socket in a directory that is closed to others; give it the mode 0600, then its path."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with tempfile.TemporaryDirectory(prefix=".shoal-", dir=Path(path).parent) as directory:
            made = Path(directory, "s")
            listening.bind(str(made))
            made.chmod(0o600)
            listening.listen(_BACKLOG)
            made.replace(path)
    except OSError as error:
        listening.close()
        cause = error.strerror or str(error)
        raise ConfigError(f"--control '{path}': cannot listen there: {cause}") from error
    return listening


def ask_mirror(path: str, command: str) -> dict[str, Any]:
    """
    Send a command to a running mirror, and return its answer as an object.

    Args:
        path: The path of its control socket.
        command: The command, as one line.

    Raises:
        Disconnected: No mirror listens there, or it does not answer.
        ConfigError: A process of another user listens there, or may listen.
        ProtocolError: The answer is not one of a mirror.

    """
    where = f"the control socket {path}"
    others = f"{where} belongs to another user. Run the command as that user"
    if not hasattr(socket, "SO_PEERCRED"):
        raise ConfigError(f"{where} needs Linux: this system does not show which user listens")
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_CLIENT_TIMEOUT_S)
            connection.connect(path)
            if user_of(connection) not in (os.geteuid(), 0):
                raise ConfigError(others)
            # A mirror that turns a client away does not read its line.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(f"{_JSON} {command}\n".encode())
            text = _read_answer(connection)
    except PermissionError:
        raise ConfigError(others) from None
    except OSError as error:
        raise Disconnected(where, f"no mirror answers: {error.strerror or error}") from error
    if text == _TOO_MANY:
        return Answer(_TOO_MANY.decode().removeprefix("error: ").strip(), ok=False).to_json_object()
    try:
        answer: dict[str, Any] = json.loads(text)
        _ = answer["ok"], answer["text"]
    except (ValueError, KeyError, TypeError):
        first = printable(text.decode(errors="replace").strip()[:200])
        raise ProtocolError(f"{where} sent no answer of a mirror: {first or 'nothing'}") from None
    return answer


def _read_answer(connection: socket.socket) -> bytes:
    answer = bytearray()
    try:
        while len(answer) <= _LONGEST_ANSWER and (received := connection.recv(65536)):
            answer += received
    except ConnectionResetError:  # behind an answer: the mirror left a part of the line unread
        if not answer:
            raise
    return bytes(answer)
