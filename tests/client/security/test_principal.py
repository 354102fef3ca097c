"""The principal of a client, from its own login."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from rig.authority import Authority
from rig.identity_provider import IdentityProvider
from shoal.client.security.login import (
    ClientCredentials,
    KerberosLogin,
    Keytab,
    OAuthLogin,
    PasswordLogin,
    Security,
    TokenEndpoint,
    TokenFile,
)
from shoal.client.security.principal import principal_of
from shoal.client.security.tls import TlsSettings
from shoal.client.security.tokens import by_token


def jwt(**claims: Any) -> str:
    header, body = (base64.urlsafe_b64encode(json.dumps(each).encode()) for each in ({"alg": "none"}, claims))
    return f"{header.decode().rstrip('=')}.{body.decode().rstrip('=')}.x"


def with_certificate(*parts: list[tuple[x509.ObjectIdentifier, str]]) -> Security:
    subject = x509.Name(
        [x509.RelativeDistinguishedName([x509.NameAttribute(*each) for each in part]) for part in parts]
    )
    identity = Authority().issue("unused", subject=subject)
    return Security(tls=TlsSettings(certificates=identity.chain_pem, private_key=identity.key_pem()))


def test_password_login_has_its_user() -> None:
    assert principal_of(Security(login=PasswordLogin("SCRAM-SHA-512", "bob", "secret"))) == "User:bob"


@pytest.mark.parametrize("principal", ["mirror@EXAMPLE.COM", "mirror/host.example@EXAMPLE.COM", "mirror"])
def test_keytab_has_the_first_part_of_its_principal(principal: str) -> None:
    login = KerberosLogin("kafka", principal, Keytab("mirror.keytab", ""))
    assert principal_of(Security(login=login)) == "User:mirror"


def test_token_file_has_the_claim_that_names_the_principal(tmp_path: Path) -> None:
    file = tmp_path / "token"
    login = OAuthLogin(TokenFile(str(file)))
    assert principal_of(Security(login=login)) is None
    file.write_text(jwt(sub="mirror", client="c1"))
    assert principal_of(Security(login=login)) == "User:mirror"
    assert principal_of(Security(login=replace(login, subject_claim="client"))) == "User:c1"
    file.write_text("opaque")
    assert principal_of(Security(login=login)) is None


def test_endpoint_gives_a_subject_only_after_a_login() -> None:
    with IdentityProvider({"mirror": "secret"}) as provider:
        login = OAuthLogin(TokenEndpoint(provider.token_url, ClientCredentials("mirror", "secret")))
        assert (principal_of(Security(login=login)), provider.requests) == (None, [])
        next(by_token(login))
        assert (principal_of(Security(login=login)), len(provider.requests)) == ("User:mirror", 1)


def test_certificate_has_its_subject_as_java_writes_it() -> None:
    certificate = with_certificate(
        [(NameOID.COUNTRY_NAME, "DE")],
        [(NameOID.ORGANIZATION_NAME, 'Ex, "L" <td>; a\\b')],
        [(NameOID.ORGANIZATIONAL_UNIT_NAME, "data  two ü")],
        [(NameOID.DOMAIN_COMPONENT, "example"), (NameOID.USER_ID, "u")],
        [(NameOID.STREET_ADDRESS, "s")],
        [(NameOID.COMMON_NAME, "1 mir+ror")],
    )
    # Recorded from getSubjectX500Principal().getName() of OpenJDK 17.
    assert principal_of(certificate) == (
        r"User:CN=1 mir\+ror,STREET=s,UID=u+DC=example,OU=data  two ü,O=Ex\, \"L\" \<td\>\; a\\b,C=DE"
    )


@pytest.mark.parametrize(
    "part",
    [
        (NameOID.EMAIL_ADDRESS, "a@example.com"),
        (NameOID.COMMON_NAME, "a=b"),
        (NameOID.COMMON_NAME, "a#b"),
        (NameOID.COMMON_NAME, " a"),
    ],
)
def test_certificate_that_java_writes_in_its_own_way_has_an_unknown_principal(
    part: tuple[x509.ObjectIdentifier, str],
) -> None:
    assert principal_of(with_certificate([(NameOID.ORGANIZATION_NAME, "Example")], [part])) is None


@pytest.mark.parametrize("security", [Security(), Security(tls=TlsSettings())])
def test_client_without_login_or_certificate_has_no_principal(security: Security) -> None:
    assert principal_of(security) is None
    assert not security.is_authenticated


def test_sasl_login_wins_over_the_certificate_of_its_connection() -> None:
    security = with_certificate([(NameOID.COMMON_NAME, "machine")])
    assert principal_of(replace(security, login=PasswordLogin("PLAIN", "bob", "secret"))) == "User:bob"
