"""Logins by Kerberos without a KDC: their properties and hosts."""

from __future__ import annotations

import base64
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.client.security import kerberos as kerberos_properties
from shoal.client.security.kerberos import load_gssapi, service_host
from shoal.client.security.login import KerberosLogin, Keytab, NoCredentials, Security, TicketCache
from shoal.client.security.properties import read_security
from shoal.errors import ConfigError
from shoal.json_values import read_value, to_json
from tests.snapshots import Texts

MODULE = "com.sun.security.auth.module.Krb5LoginModule"

#: The first bytes of a keytab, and a key.
KEYTAB = b"\x05\x02secret key"


@pytest.fixture(autouse=True)
def _installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read properties also where the package is not installed."""
    if "library" not in request.node.name:
        monkeypatch.setattr(kerberos_properties, "load_gssapi", lambda: None)


@pytest.fixture
def keytab(tmp_path: Path) -> Path:
    path = tmp_path / "mirror.keytab"
    path.write_bytes(KEYTAB)
    return path


def properties_of(options: str, **more: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": f"{MODULE} required {options};",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def read(options: str, **more: str) -> KerberosLogin:
    security = read_security(properties_of(options, **more), "the file")
    assert security is not None
    assert isinstance(security.login, KerberosLogin)
    return security.login


def test_keytab_is_read_with_its_keys(keytab: Path) -> None:
    login = read(
        f'useKeyTab=true storeKey=true doNotPrompt=true keyTab="{keytab}" principal="mirror@EXAMPLE"'
    )
    content = base64.b64encode(KEYTAB).decode()
    assert login == KerberosLogin("kafka", "mirror@EXAMPLE", Keytab(str(keytab), content))
    assert login.mechanism == "GSSAPI"
    assert login.user.endswith(" mirror@EXAMPLE")
    assert content not in repr(login)


def test_type_of_a_keytab_may_stand_before_its_path(keytab: Path) -> None:
    login = read(f'useKeyTab=true keyTab="FILE:{keytab}" principal="mirror"')
    assert login.keytab is not None
    assert login.keytab.path == str(keytab)


def test_ticket_cache_may_be_the_default_one() -> None:
    assert read("useTicketCache=true renewTGT=true").ticket_cache == TicketCache()
    named = read('useTicketCache=True ticketCache="/tmp/cc"', sasl_kerberos_kinit_cmd="/opt/kinit")
    assert named.ticket_cache == TicketCache("/tmp/cc")
    assert named.keytab is None


def test_mechanism_of_the_module_is_the_default_as_in_java(keytab: Path) -> None:
    properties = properties_of("useTicketCache=true")
    del properties["sasl.mechanism"]
    security = read_security(properties, "the file")
    assert security is not None
    assert security.mechanism == "GSSAPI"


def test_service_name_may_be_an_option_as_in_java() -> None:
    login = read('useTicketCache=true serviceName="events"', sasl_kerberos_service_name="")
    assert login.service == "events"


def test_security_with_a_keytab_travels_as_json(keytab: Path) -> None:
    options = f'useKeyTab=true useTicketCache=true keyTab="{keytab}" principal="mirror"'
    security = Security(login=read(options))
    assert read_value(Security, to_json(security)) == security


@pytest.mark.parametrize(
    "options",
    [
        "",
        "useKeyTab=true",
        'useKeyTab=true keyTab="KEYTAB"',
        'useKeyTab=true keyTab="/no/such" principal="a"',
        'useKeyTab=true keyTab="TEXT" principal="a"',
        "useTicketCache=true keytab=typo",
    ],
)
def test_unusable_option_is_named(options: str, texts: Texts, keytab: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no keytab")
    options = options.replace("KEYTAB", str(keytab)).replace("TEXT", str(tmp_path / "text"))
    with pytest.raises(ConfigError) as refused:
        read(options)
    texts(str(refused.value))
    assert str(refused.value).startswith("the file: ")
    assert "secret" not in str(refused.value)


def test_missing_service_name_is_named() -> None:
    with pytest.raises(ConfigError, match=r"sasl\.kerberos\.service\.name"):
        read("useTicketCache=true", sasl_kerberos_service_name="")


def test_handlers_of_java_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"supported.*GSSAPI"):
        read("useTicketCache=true", sasl_login_callback_handler_class="example.Handler")


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r"GSSAPI.*'shoal\[kerb"):
        read("useTicketCache=true")


def test_missing_library_of_the_system_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "libgssapi_krb5.so.2: cannot open shared object file: No such file or directory"
    (tmp_path / "gssapi.py").write_text(f"raise ImportError({reason!r})")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gssapi", raising=False)
    with pytest.raises(NoCredentials) as failure:
        load_gssapi()
    assert all(each in failure.value.reason for each in (f"({reason})", "Kerberos"))


# Hosts


class Names:
    """A resolver: addresses by names, and names by addresses."""

    def __init__(self, addresses: dict[str, str], names: dict[str, str]) -> None:
        self.addresses = addresses
        self.names = names

    def getaddrinfo(self, host: str, port: int | None) -> list[Any]:
        address = host if host in self.names else self.addresses.get(host)
        if address is None:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))]

    def getnameinfo(self, address: tuple[str, int], flags: int) -> tuple[str, str]:
        assert flags == socket.NI_NAMEREQD
        if address[0] not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return self.names[address[0]], "0"


@pytest.mark.parametrize(
    ("host", "in_principal"),
    [
        ("kafka1", "kafka1.example"),
        ("KAFKA1", "kafka1.example"),
        ("kafka1.example", "kafka1.example"),
        ("kafka1.example.", "kafka1.example"),
        ("alias.example", "alias.example"),
        ("unknown.example", "unknown.example"),
        ("10.0.0.1", "kafka1.example"),
        ("10.0.0.2", "10.0.0.2"),
        ("10.0.0.3", "10.0.0.3"),
    ],
    ids=[
        "short name",
        "capital letters",
        "full name",
        "final dot",
        "alias of another name",
        "name that does not resolve",
        "address",
        "address whose name has another address",
        "address without a name",
    ],
)
def test_host_of_a_principal_is_that_of_java(
    host: str, in_principal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(
        addresses=dict.fromkeys(("kafka1", "KAFKA1", "kafka1.example", "alias.example"), "10.0.0.1"),
        names={"10.0.0.1": "kafka1.example", "10.0.0.2": "kafka1.example"},
    )
    monkeypatch.setattr(socket, "getaddrinfo", names.getaddrinfo)
    monkeypatch.setattr(socket, "getnameinfo", names.getnameinfo)
    assert service_host(host) == in_principal
