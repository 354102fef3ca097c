"""Access to metrics and page: a token in a file, and TLS."""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

import pytest

from rig.authority import Authority
from shoal.errors import ConfigError
from shoal.mirroring.model.http_access import HttpAccess
from shoal.mirroring.monitoring.http_server.access import Guard
from shoal.mirroring.monitoring.http_server.server import Answer, HttpServer
from shoal.net.address import Address
from shoal.net.server_tls import TlsFiles
from shoal.timing import Timing
from tests.two_brokers import is_let_go, wait_until

LOCAL = Address("127.0.0.1", 0)

TOKEN = "0123456789abcdef-._~+/=="


def serving(access: HttpAccess) -> HttpServer:
    return HttpServer("look", LOCAL, {"/": lambda _: Answer(b"hello", {})}, access)


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


def ask(
    address: Address, authorization: str | None = None, tls: ssl.SSLContext | None = None, path: str = "/"
) -> Answered:
    connection = (
        http.client.HTTPSConnection(address.host, address.port, timeout=10, context=tls)
        if tls
        else http.client.HTTPConnection(address.host, address.port, timeout=10)
    )
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Authorization": authorization} if authorization else {})
        answer = connection.getresponse()
        return Answered(answer.status, answer.read(), answer.headers.get_all("WWW-Authenticate") or [])


def basic(credentials: str) -> str:
    return "Basic " + base64.b64encode(credentials.encode()).decode()


# The token


@pytest.mark.parametrize(
    "authorization",
    [f"Bearer {TOKEN}", f"bearer  {TOKEN} ", basic(f":{TOKEN}"), basic(f"anyone:{TOKEN}")],
)
def test_request_with_token_is_answered(tmp_path: Path, authorization: str) -> None:
    with serving(HttpAccess(token_file=token_file(tmp_path))) as server:
        assert ask(server.address, authorization) == Answered(200, b"hello", [])


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
    with serving(HttpAccess(token_file=token_file(tmp_path))) as server:
        answered = ask(server.address, authorization, path=path)
    assert answered.status == 401
    assert answered.challenges == ['Bearer realm="shoal"', 'Basic realm="shoal", charset="UTF-8"']
    assert TOKEN.encode() not in answered.body
    assert answered.body.startswith(b"This server answers only requests with its token")


def test_request_without_token_for_another_host_is_misdirected(tmp_path: Path) -> None:
    """An attacker's page must not see whether there is a token."""
    with (
        serving(HttpAccess(token_file=token_file(tmp_path))) as server,
        socket.create_connection(server.address, timeout=10) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: attacker.example\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.0 421"


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o666, 0o620, 0o660])
def test_token_file_accessible_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    file = token_file(tmp_path, mode=mode)
    with pytest.raises(ConfigError) as refused:
        Guard(HttpAccess(token_file=file), "127.0.0.1")
    assert all(each in str(refused.value) for each in ("http_token_file", str(file), f"{mode:04o}", "600"))


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
    Guard(HttpAccess(token_file=file), "127.0.0.1")
    owned_by(1000)
    with pytest.raises(ConfigError, match=r"0440.*allows"):
        Guard(HttpAccess(token_file=file), "127.0.0.1")


@pytest.mark.parametrize(
    "content", ["", "\n", "short", "a" * 15, "a" * 20 + " b", "a" * 20 + "\nb", b"\xff" * 20]
)
def test_empty_token_file_is_refused_with_a_remedy(tmp_path: Path, content: str | bytes) -> None:
    file = token_file(tmp_path, content)
    with pytest.raises(ConfigError) as refused:
        Guard(HttpAccess(token_file=file), "127.0.0.1")
    assert all(
        each in str(refused.value)
        for each in ("http_token_file", str(file), "16", "-._~+/", "077", "32", "FILE")
    )


def test_missing_token_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^http_token_file.*/.*/none"):
        Guard(HttpAccess(token_file=tmp_path / "none"), "127.0.0.1")


# TLS


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def files(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    directory = tmp_path_factory.mktemp("tls")
    identity = authority.issue("shoal", "127.0.0.1")
    (directory / "ca.pem").write_text(authority.pem)
    (directory / "server.pem").write_text(identity.chain_pem)
    (directory / "server.key").write_text(identity.key_pem())
    return TlsFiles(directory / "server.pem", directory / "server.key")


@pytest.fixture
def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.pem)


def test_https_is_served_with_the_certificate(
    files: TlsFiles, trusting: ssl.SSLContext, tmp_path: Path
) -> None:
    with serving(HttpAccess(token_file=token_file(tmp_path), tls=files)) as server:
        assert server.url == f"https://{server.address}"
        assert ask(server.address, f"Bearer {TOKEN}", trusting) == Answered(200, b"hello", [])
        assert ask(server.address, None, trusting).status == 401


def test_plain_http_to_an_https_server_has_no_response(files: TlsFiles) -> None:
    with serving(HttpAccess(tls=files)) as server, pytest.raises((http.client.HTTPException, OSError)):
        ask(server.address)


def test_oldest_version_of_tls_is_1_2(files: TlsFiles) -> None:
    context = Guard(HttpAccess(tls=files), "127.0.0.1").tls
    assert context is not None
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_client_certificate_is_required_if_authorities_are_given(
    files: TlsFiles, trusting: ssl.SSLContext, authority: Authority, tmp_path: Path
) -> None:
    mutual = TlsFiles(files.certificates, files.private_key, files.certificates.parent / "ca.pem")
    client = authority.issue("prometheus").write_pem(tmp_path / "client.pem")
    with serving(HttpAccess(tls=mutual)) as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(server.address, tls=trusting)
        trusting.load_cert_chain(client)
        assert ask(server.address, tls=trusting).status == 200


def test_silent_clients_do_not_delay_handshakes(files: TlsFiles, trusting: ssl.SSLContext) -> None:
    with serving(HttpAccess(tls=files)) as server, contextlib.ExitStack() as held:
        for _ in range(100):
            held.enter_context(socket.create_connection(server.address, timeout=10))
        assert ask(server.address, tls=trusting).status == 200


def test_handshake_has_one_deadline(files: TlsFiles) -> None:
    with (
        serving(HttpAccess(tls=files, timing=Timing(http_request_s=0.5))) as server,
        socket.create_connection(server.address, timeout=0.05) as slow,
    ):
        slow.sendall(b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc")  # a ClientHello of 16 KiB begins
        wait_until(lambda: is_let_go(slow, b"\0"), 5)


def test_incomplete_tls_files_are_refused(tmp_path: Path) -> None:
    names = ("http_tls_certificate", "http_tls_key", "http_tls_client_authorities")
    for given in ((("cert"), None, None), (None, "key", None), (None, None, "ca"), ("cert", None, "ca")):
        with pytest.raises(ConfigError, match=r"http_tls_certificate.*http_tls_key"):
            HttpAccess.parse(dict(zip(names, given, strict=True)))


def test_mismatched_tls_files_are_refused(files: TlsFiles, authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "other.key").write_text(authority.issue("other").key_pem())
    (tmp_path / "locked.key").write_text(authority.issue("other").key_pem("password"))
    for key, sentence in (
        ("other.key", r"they cannot be read, or do not belong together \(KEY_VALUES_MISMATCH\)"),
        ("locked.key", "the key is encrypted. Use one without a passphrase"),
        ("none.key", "there is no such file"),
    ):
        with pytest.raises(ConfigError, match=rf"http_tls_key \S+{key}: {sentence}"):
            serving(HttpAccess(tls=TlsFiles(files.certificates, tmp_path / key)))
