"""Java's properties of OAUTHBEARER and AWS_MSK_IAM, understood without a service."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from rig.authority import Authority
from shoal.client.config import ClientConfig
from shoal.client.security import Security, read_security
from shoal.client.security.login import ClientCredentials, OAuthLogin, TokenClass, TokenEndpoint, TokenFile
from shoal.client.security.tls import TlsSettings
from shoal.client.security.token import AccessToken
from shoal.errors import ConfigError
from shoal.json_values import read_value, to_json
from shoal.mirroring.credentials import PROCESS_KEY, Credentials

OAUTH = "org.apache.kafka.common.security.oauthbearer"
MODULE = f"{OAUTH}.OAuthBearerLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
HANDLER = "sasl.login.callback.handler.class"
URL = "sasl.oauthbearer.token.endpoint.url"
ID = "sasl.oauthbearer.client.credentials.client.id"
SECRET_KEY = "sasl.oauthbearer.client.credentials.client.secret"
SECRET = "hidden-7f"
IDP = "https://idp.example/token"
MIRROR = ClientCredentials("mirror", SECRET)


def oauth(options: str = f'clientId="mirror" clientSecret="{SECRET}"', **changed: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{MODULE} required {options};",
        HANDLER: f"{OAUTH}.OAuthBearerLoginCallbackHandler",
        URL: IDP,
        **changed,
    }


def login_of(properties: dict[str, str]) -> OAuthLogin:
    security = read_security(properties, "the file")
    assert security is not None
    assert isinstance(security.login, OAuthLogin)
    assert security.mechanism == "OAUTHBEARER"
    return security.login


def test_options_of_jaas_are_read_as_in_kip_768() -> None:
    login = login_of(oauth(f'clientId="mirror" clientSecret="{SECRET}" scope="read write"'))
    assert login == OAuthLogin(TokenEndpoint(IDP, MIRROR, "read write"))
    assert "tokens" in login.user


def test_properties_take_precedence_over_jaas_as_in_kip_1139() -> None:
    properties = {ID: "other", SECRET_KEY: "o-secret", "sasl.oauthbearer.scope": "all"}
    login = login_of(oauth('clientId="mirror" clientSecret="x" scope="y"', **properties))
    assert login.source == TokenEndpoint(IDP, ClientCredentials("other", "o-secret"), "all")
    assert login_of(oauth("", **properties)) == login


def test_endpoint_s_own_settings_are_read() -> None:
    authority = Authority()
    properties = {
        "sasl.oauthbearer.header.urlencode": "true",
        "sasl.login.connect.timeout.ms": "1000",
        "sasl.login.read.timeout.ms": "7000",
        "sasl.oauthbearer.sub.claim.name": "azp",
    }
    pem = authority.pem.replace("\n", " ")
    options = f'clientId="a" clientSecret="b" ssl.truststore.type="PEM" ssl.truststore.certificates="{pem}"'
    login = login_of(oauth(options, **properties))
    tls = TlsSettings(trusted=authority.pem)
    assert login.source == TokenEndpoint(IDP, ClientCredentials("a", "b", True), tls=tls, timeout_ms=7000)
    assert login.subject_claim == "azp"


def test_trust_store_of_the_brokers_is_not_the_endpoint_s(tmp_path: Path) -> None:
    authority = Authority()
    (tmp_path / "ca.pem").write_text(authority.pem)
    properties = oauth(
        **{
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(tmp_path / "ca.pem"),
        }
    )
    security = read_security(properties, "the file")
    assert security is not None
    assert security.tls == TlsSettings(trusted=authority.pem)
    assert isinstance(security.login, OAuthLogin)
    assert isinstance(security.login.source, TokenEndpoint)
    assert security.login.source.tls == TlsSettings()


def test_extensions_are_read() -> None:
    options = (
        'clientId="a" clientSecret="b" extension_logicalCluster="lkc-1" extension_identityPoolId="pool 2"'
    )
    assert login_of(oauth(options)).extensions == (("logicalCluster", "lkc-1"), ("identityPoolId", "pool 2"))


@pytest.mark.parametrize(
    "url", ["file:/run/token%201", "file:///run/token%201", "FILE://localhost/run/token%201"]
)
def test_url_of_a_file_is_a_token_file(url: str) -> None:
    assert login_of(oauth("", **{URL: url})).source == TokenFile("/run/token 1")


@pytest.mark.parametrize(
    "retriever",
    [
        "",
        f"{OAUTH}.DefaultJwtRetriever",
        f"{OAUTH}.FileJwtRetriever",
        f"{OAUTH}.ClientCredentialsJwtRetriever",
    ],
)
@pytest.mark.parametrize("handler", ["", f"{OAUTH}.secured.OAuthBearerLoginCallbackHandler"])
def test_kafka_s_own_classes_are_accepted(retriever: str, handler: str) -> None:
    properties = {
        "sasl.oauthbearer.jwt.retriever.class": retriever,
        "sasl.oauthbearer.jwt.validator.class": f"{OAUTH}.ClientJwtValidator",
        HANDLER: handler,
    }
    assert isinstance(login_of(oauth(**properties)).source, TokenEndpoint)


class Tokens:
    """A class of a user."""

    def token(self) -> str:
        return "x"


def test_python_class_receives_the_options() -> None:
    name = f"{__name__}:Tokens"
    login = login_of(oauth('path="vault/kafka" pin="1"', **{HANDLER: name, URL: ""}))
    assert login.source == TokenClass(name, (("path", "vault/kafka"), ("pin", "1")))


@pytest.mark.parametrize(
    "url", ["http://localhost:8080/token", "http://127.0.0.1/token", "http://[::1]:1/token"]
)
def test_loopback_needs_no_tls(url: str) -> None:
    assert login_of(oauth(**{URL: url})).source == TokenEndpoint(url, MIRROR)


def test_http_can_be_allowed() -> None:
    url = "http://keycloak:8080/token"
    login = login_of(oauth(**{URL: url, "shoal.oauthbearer.allow.http": "true"}))
    assert login.source == TokenEndpoint(url, MIRROR)


RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
VALIDATOR = "sasl.oauthbearer.jwt.validator.class"
OWN = "com.example.Own"

#: Properties, and what the refusal of them names.
UNUSABLE = [
    ({URL: ""}, f"no {URL}"),
    ({URL: "http://keycloak:8080/token?k=hidden-7f"}, f"{URL}=http://keycloak:8080/token has no TLS"),
    ({URL: "https://mirror:hidden-7f@idp/token"}, f"{URL} is not"),
    ({URL: "ftp://idp/token"}, f"{URL} is not"),
    ({URL: "https://idp:port/token"}, f"{URL} is not"),
    ({URL: "https://idp/t oken"}, f"{URL} is not"),
    ({URL: "https:///token"}, f"{URL} is not"),
    ({URL: "file:token"}, f"{URL}=file:token is not the URL of a file"),
    ({URL: "file://host/token"}, "is not the URL of a file"),
    ({HANDLER: "io.strimzi.Handler"}, f"{HANDLER}=io.strimzi.Handler"),
    ({"sasl.client.callback.handler.class": OWN}, f"sasl.client.callback.handler.class={OWN}"),
    ({HANDLER: "tests.none:Tokens"}, f"{HANDLER} tests.none:Tokens: No module named"),
    ({HANDLER: "json:JSONDecoder"}, r"no method token\(\)"),
    ({HANDLER: "json:Nothing"}, "no such class"),
    ({RETRIEVER: OWN}, f"{RETRIEVER}={OWN}"),
    ({RETRIEVER: f"{OAUTH}.JwtBearerJwtRetriever"}, "JwtBearerJwtRetriever"),
    ({VALIDATOR: OWN}, f"{VALIDATOR}={OWN}"),
    ({"sasl.login.read.timeout.ms": "soon"}, "sasl.login.read.timeout.ms=soon"),
    ({"sasl.oauthbearer.header.urlencode": "ja"}, "urlencode=ja"),
    ({"sasl.jaas.config": f"{PLAIN} required;"}, f"login module of OAUTHBEARER: {MODULE}"),
    ('clientId="mirror"', f"no {ID} with its .*secret"),
    ('clientSecret="hidden-7f"', f"no {ID} with its .*secret"),
    ('clientId="a" clientSecret="b" extension_auth="x"', "extension_auth"),
    ('clientId="a" clientSecret="b" extension_a1="x"', "extension_a1"),
    ('clientId="a" clientSecret="b" extension_a="\\001"', "extension_a"),
    ('clientId="a" clientSecret="b" ssl.truststore.location="/missing"', "ssl.truststore.location /missing"),
]


@pytest.mark.parametrize(("changes", "sentence"), UNUSABLE)
def test_unusable_property_of_oauth_is_named_without_secrets(
    changes: dict[str, str] | str, sentence: str
) -> None:
    properties = oauth(changes) if isinstance(changes, str) else oauth(**changes)
    with pytest.raises(ConfigError, match=sentence) as refused:
        read_security(properties, "the file")
    assert SECRET not in str(refused.value)
    assert str(refused.value).startswith("the file: ")


def test_missing_login_module_is_named() -> None:
    with pytest.raises(ConfigError, match=rf"sasl\.jaas\.config.*{MODULE}"):
        read_security({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "the file")


def test_handlers_of_tokens_are_refused_with_passwords() -> None:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="a" password="b";',
        HANDLER: "com.example.Handler",
    }
    with pytest.raises(ConfigError, match=rf"{HANDLER}.*PLAIN"):
        read_security(properties, "the file")


def test_secrets_of_oauth_travel_sealed_alone() -> None:
    config, warnings = ClientConfig.from_properties("source", {"bootstrap.servers": "a:1", **oauth()})
    assert warnings == []
    credentials = Credentials.of(config)
    sealed = credentials.seal(PROCESS_KEY)
    for text in (sealed, repr(config), repr(credentials)):
        assert SECRET not in text
    (opened,) = Credentials.unseal(sealed, PROCESS_KEY).by_cluster.values()
    assert config.security is not None
    assert (opened.login, opened.has_worked) == (config.security.login, True)
    assert pickle.loads(pickle.dumps(config)) == config
    assert "value" not in repr(AccessToken(SECRET))


@pytest.mark.parametrize(
    "login",
    [
        OAuthLogin(TokenEndpoint(IDP, MIRROR, "c", TlsSettings("pem", versions=("TLSv1.3",)))),
        OAuthLogin(TokenFile("/run/token"), (("name", "value"),)),
        OAuthLogin(TokenClass("a:B", (("c", "d"),)), subject_claim="azp"),
    ],
    ids=["endpoint", "file", "class"],
)
def test_login_is_the_same_after_its_way_to_a_task(login: OAuthLogin) -> None:
    security = Security(TlsSettings(private_key="key"), login)
    opened = read_value(Security, json.loads(json.dumps(to_json(security))))
    assert opened == security
    assert hash(opened) == hash(security)
