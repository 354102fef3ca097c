"""Java's security properties, understood without a broker."""

from __future__ import annotations

import pickle
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from rig.authority import Authority
from shoal.client.config import ClientConfig
from shoal.client.security import PasswordLogin, read_security
from shoal.client.security.jaas import parse_jaas
from shoal.client.security.login import Exchange
from shoal.client.security.sasl import by_password
from shoal.client.security.tls import tls_context
from shoal.errors import ConfigError
from shoal.mirroring.credentials import PROCESS_KEY, Credentials
from tests.snapshots import Texts

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECRET = "hidden-7f"


def sasl(**changed: str) -> dict[str, str]:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="alice" password="{SECRET}";',
    }
    return {**properties, **{name.replace("_", "."): value for name, value in changed.items()}}


@pytest.mark.parametrize(
    ("text", "password"),
    [
        ('password="a b"', "a b"),
        ("password='a\"b'", 'a"b'),
        (r'password="a\"b\\c"', r'a"b\c'),
        (r'password="\101\n\t\q"', "A\n\tq"),
        ('password="x;y=z//w"', "x;y=z//w"),
        ("password=plain-word_1$.x", "plain-word_1$.x"),
        ('// a comment\n password /* another */ = "p"', "p"),
    ],
)
def test_jaas_is_tokenized_as_in_java(text: str, password: str) -> None:
    module = parse_jaas(f'{PLAIN} REQUIRED username="alice" {text} ;')
    assert (module.name, module.options) == (PLAIN, {"username": "alice", "password": password})


@pytest.mark.parametrize(
    "text",
    [
        "",
        f'{PLAIN} required password="hidden-7f"',
        f"{PLAIN} required password=hidden-7f!;",
        f'{PLAIN} required password="hidden-7f;',
        f"{PLAIN} required password=hidden;-7f;",
        f'{PLAIN} password="hidden-7f";',
        f'{PLAIN} required password "hidden-7f";',
        f"{PLAIN} required password=;",
        f'{PLAIN} requiredpassword="hidden-7f";',
    ],
)
def test_invalid_jaas_is_refused_without_its_secret(text: str) -> None:
    with pytest.raises(ValueError, match='CLASS required name="value"') as refused:
        parse_jaas(text)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    "properties",
    [
        {"security.protocol": "TLS"},
        sasl(sasl_mechanism="DIGEST-MD5"),
        sasl(sasl_mechanism="GSSAPI"),
        {"security.protocol": "SASL_SSL"},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
        sasl(sasl_mechanism="SCRAM-SHA-256"),
        sasl(sasl_jaas_config=f'{PLAIN} required password="{SECRET}";'),
        sasl(sasl_login_class="com.example.Login"),
        {"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1"},
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "x"},
        {"security.protocol": "SSL", "ssl.truststore.location": "/missing"},
        {"security.protocol": "SSL", "ssl.truststore.certificates": SECRET},
        {"security.protocol": "SSL", "ssl.keystore.key": SECRET},
    ],
)
def test_unusable_security_property_is_named_without_secrets(
    properties: dict[str, str], texts: Texts
) -> None:
    with pytest.raises(ConfigError) as refused:
        read_security(properties, "the file")
    texts(str(refused.value))
    assert SECRET not in str(refused.value)
    assert str(refused.value).startswith("the file: ")


def test_secrets_are_absent_from_repr() -> None:
    config, warnings = ClientConfig.from_properties("source", {"bootstrap.servers": "a:1", **sasl()})
    assert warnings == []
    assert config.security is not None
    assert config.security.login == PasswordLogin("PLAIN", "alice", SECRET)
    assert SECRET not in repr(config)


def test_misspelt_property_warns() -> None:
    _, warnings = ClientConfig.from_properties(
        "source", {"bootstrap.servers": "a:1", **sasl(ssl_trustore_location="x")}
    )
    assert len(warnings) == 1
    assert "ssl.trustore.location" in warnings[0]


def test_scram_name_is_escaped_as_in_rfc_5802() -> None:
    exchange = by_password(PasswordLogin("SCRAM-SHA-256", "a=b,c", "x"))
    assert next(exchange).startswith(b"n,,n=a=3Db=2Cc,r=")


@pytest.mark.parametrize("answer", [b"", b"e=other-error", b"r=another,s=AAAA,i=4096", b"\xff"])
def test_invalid_scram_server_message_is_refused(answer: bytes) -> None:
    exchange = by_password(PasswordLogin("SCRAM-SHA-512", "a", "x"))
    next(exchange)
    with pytest.raises(ValueError, match=r"message.*fit"):
        exchange.send(answer)


def _first_answer(exchange: Exchange, iterations: str) -> bytes:
    """Answer as a broker that knows the nonce."""
    nonce = next(exchange).partition(b"r=")[2]
    return b"r=" + nonce + b"server,s=c2FsdA==,i=" + iterations.encode()


@pytest.mark.parametrize(
    "iterations", ["1", "4095", "0", "-1", "+1", " 1", "0_1", "4096,i=1", "9" * 5000, "\u0661"]
)
def test_scram_with_too_few_iterations_sends_no_proof(iterations: str) -> None:
    exchange = by_password(PasswordLogin("SCRAM-SHA-256", "a", "x"))
    with pytest.raises(ValueError, match="iterations"):
        exchange.send(_first_answer(exchange, iterations))


@pytest.mark.parametrize(("least", "iterations"), [(4096, "4096"), (1, "1")])
def test_scram_with_enough_iterations_sends_a_proof(least: int, iterations: str) -> None:
    exchange = by_password(PasswordLogin("SCRAM-SHA-256", "a", "x", least))
    assert b",p=" in exchange.send(_first_answer(exchange, iterations))


def test_fewer_scram_iterations_if_allowed_warn() -> None:
    properties = {"bootstrap.servers": "a:1", **sasl(shoal_scram_min_iterations="1000")}
    config, (warning,) = ClientConfig.from_properties("source", properties)
    assert config.security is not None
    assert isinstance(config.security.login, PasswordLogin)
    assert config.security.login.least_scram_iterations == 1000
    assert "shoal.scram.min.iterations=1000" in warning
    with pytest.raises(ConfigError, match=r"shoal.scram.min.iterations=few"):
        read_security(sasl(shoal_scram_min_iterations="few"), "the file")


def test_key_stores_of_every_format_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority()
    identity = authority.issue("alice")
    pem = identity.write_pem(tmp_path / "key.pem", SECRET)
    p12 = identity.write_pkcs12(tmp_path / "key.jks", SECRET)
    trusted = {"security.protocol": "SSL", "ssl.truststore.certificates": authority.pem.replace("\n", " ")}
    by_pem = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(pem), "ssl.key.password": SECRET}
    by_p12 = {"ssl.keystore.location": str(p12), "ssl.keystore.password": SECRET}
    first, second = (read_security({**trusted, **each}, "the file") for each in (by_pem, by_p12))
    assert first == second
    assert first is not None
    assert first.tls is not None
    assert first.tls.trusted == authority.pem
    assert first.tls.private_key == identity.key_pem()
    # OpenSSL takes a key from a file only, which must not stay.
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    tls_context(first.tls)
    assert list((tmp_path / "temporary").iterdir()) == []
    with pytest.raises(ConfigError, match=r"key\.jks.*password") as refused:
        read_security({**trusted, **by_p12, "ssl.keystore.password": f"{SECRET}x"}, "the file")
    assert SECRET not in str(refused.value)


def test_old_jks_format_is_refused_with_a_remedy(tmp_path: Path) -> None:
    store = Authority().write_trust_store(tmp_path / "trust.jks", SECRET, "JKS")
    properties = {"security.protocol": "SSL", "ssl.truststore.location": str(store)}
    with pytest.raises(ConfigError, match=r"Convert.*keytool"):
        read_security(properties, "the file")


def test_sealed_credentials_are_opened_again() -> None:
    config, _ = ClientConfig.from_properties("source", {"bootstrap.servers": "a:1", **sasl()})
    credentials = Credentials.of(config)
    sealed = credentials.seal(PROCESS_KEY)
    assert SECRET not in sealed
    assert SECRET not in repr(credentials)
    opened = Credentials.unseal(sealed, PROCESS_KEY)
    assert config.security is not None
    assert opened.by_cluster == {"source": replace(config.security, has_worked=True)}
    assert pickle.loads(pickle.dumps(config)) == config
