"""Access to metrics and page: a token in a file."""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shoal.errors import ConfigError
from shoal.mirroring.monitoring.door import Answer, Door
from shoal.mirroring.monitoring.door.access import Guard
from shoal.net.address import Address

LOCAL = Address("127.0.0.1", 0)

TOKEN = "0123456789abcdef-._~+/=="


@contextlib.contextmanager
def serving(token_file: Path) -> Iterator[Address]:
    door = Door(token_file)
    address = door.listen("look", LOCAL, {"/": lambda: Answer(b"hello")})
    with door:
        yield address


def token_file(tmp_path: Path, content: str | bytes = TOKEN + "\n", mode: int = 0o600) -> Path:
    file = tmp_path / "token"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    file.chmod(mode)
    return file


@dataclass(frozen=True)
class Answered:
    status: int
    body: bytes
    challenges: list[str]


def ask(address: Address, authorization: str | None = None, path: str = "/") -> Answered:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Authorization": authorization} if authorization else {})
        answer = connection.getresponse()
        return Answered(answer.status, answer.read(), answer.headers.get_all("WWW-Authenticate") or [])


def basic(credentials: str) -> str:
    return "Basic " + base64.b64encode(credentials.encode()).decode()


# The token


@pytest.mark.parametrize(
    "authorization", [f"Bearer {TOKEN}", f"bearer  {TOKEN} ", basic(f":{TOKEN}"), basic(f"anyone:{TOKEN}")]
)
def test_request_with_token_is_answered(tmp_path: Path, authorization: str) -> None:
    with serving(token_file(tmp_path)) as server:
        assert ask(server, authorization) == Answered(200, b"hello", [])


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN.upper()}",
        "Bearer \xfc" * 9,
        TOKEN,
        f"Digest {TOKEN}",
        basic(TOKEN),
        basic(f"{TOKEN}:"),
        basic(f"anyone:{TOKEN}:"),
        "Basic ***",
        "Basic \xfc",
    ],
)
@pytest.mark.parametrize("path", ["/", "/nowhere"])
def test_request_without_token_is_refused(tmp_path: Path, authorization: str | None, path: str) -> None:
    with serving(token_file(tmp_path)) as server:
        answered = ask(server, authorization, path=path)
    assert answered.status == 401
    assert answered.challenges == ['Bearer realm="shoal"', 'Basic realm="shoal", charset="UTF-8"']
    assert TOKEN.encode() not in answered.body
    assert answered.body.startswith(b"This server answers only requests with its token")


def test_request_without_token_for_another_host_is_misdirected(tmp_path: Path) -> None:
    """An attacker's page must not see whether there is a token."""
    with serving(token_file(tmp_path)) as server, socket.create_connection(server, timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: attacker.example\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.0 421"


def test_request_with_token_may_have_any_host(tmp_path: Path) -> None:
    """A proxy may pass its own name on."""
    with serving(token_file(tmp_path)) as server, socket.create_connection(server, timeout=10) as connection:
        head = f"GET / HTTP/1.1\r\nHost: proxy.example\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(12) == b"HTTP/1.0 200"


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o666, 0o620, 0o660])
def test_token_file_accessible_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    file = token_file(tmp_path, mode=mode)
    with pytest.raises(ConfigError) as refused:
        Guard(file, "127.0.0.1")
    assert all(each in str(refused.value) for each in ("--http-token-file", str(file), f"{mode:04o}", "600"))


def test_token_file_of_root_can_be_group_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As systemd's LoadCredential hands it over."""
    file = token_file(tmp_path, mode=0o440)
    true = os.fstat

    def owned_by(user: int) -> None:
        def fstat(descriptor: int) -> os.stat_result:
            status = list(true(descriptor))
            status[4] = user
            return os.stat_result(status)

        monkeypatch.setattr(os, "fstat", fstat)

    owned_by(0)
    Guard(file, "127.0.0.1")
    owned_by(1000)
    with pytest.raises(ConfigError, match=r"0440.*allows"):
        Guard(file, "127.0.0.1")


@pytest.mark.parametrize(
    "content", ["", "\n", "short", "a" * 15, "a" * 20 + " b", "a" * 20 + "\nb", b"\xff" * 20]
)
def test_empty_token_file_is_refused_with_a_remedy(tmp_path: Path, content: str | bytes) -> None:
    file = token_file(tmp_path, content)
    with pytest.raises(ConfigError) as refused:
        Guard(file, "127.0.0.1")
    assert all(
        each in str(refused.value)
        for each in ("--http-token-file", str(file), "16", "-._~+/", "077", "32", "FILE")
    )


def test_missing_token_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--http-token-file.*/.*/none"):
        Guard(tmp_path / "none", "127.0.0.1")


# Encryption


@pytest.mark.parametrize(
    ("host", "has_token", "warnings"),
    [("127.0.0.1", True, 0), ("localhost", True, 0), ("0.0.0.0", True, 1), ("0.0.0.0", False, 0)],
)
def test_token_without_encryption_is_warned_of(
    tmp_path: Path, host: str, has_token: bool, warnings: int
) -> None:
    said: list[str] = []
    door = Door(token_file(tmp_path) if has_token else None, said.append)
    door.listen("look", Address(host, 0), {})
    with door:
        assert len(said) == warnings
    assert all("--look" in each and "proxy" in each and "127.0.0.1" in each for each in said)
