"""OAUTHBEARER at Kafka's own listener, which checks signed tokens by the keys of an OAuth service (JWKS)."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from rig import KafkaCluster, create_topic, digest_topic, load_plain
from rig.cluster import java_properties
from rig.identity_provider import AUDIENCE, ISSUER, IdentityProvider
from shoal.client.broker_state import topic_operations
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.errors import AccessRefused
from shoal.gateway import Gateway, GatewaySettings
from shoal.protocol.apis import ApiKey
from tests.integration.every_verb import every_verb
from tests.integration.spark_job import copy_by_spark_job

#: Longer than the test's own timeouts, on a busy machine.
pytestmark = pytest.mark.timeout(900)

PACKAGE = "org.apache.kafka.common.security.oauthbearer"
MODULE = f"{PACKAGE}.OAuthBearerLoginModule"

#: The longest session on the listener SHORT.
SESSION_MS = 5000

SECRETS = {"mirror": "mirror-secret-7c1e", "reader": "reader-secret-9f27"}


@dataclass(frozen=True, slots=True)
class OAuthKafka:
    """A broker that accepts the tokens of a provider, on the listeners OIDC and SHORT."""

    cluster: KafkaCluster
    provider: IdentityProvider


@pytest.fixture(scope="module")
def running() -> Iterator[OAuthKafka]:
    listeners = {"OIDC": "SASL_PLAINTEXT", "SHORT": "SASL_PLAINTEXT"}
    with IdentityProvider(dict(SECRETS)) as provider:
        config: dict[str, object] = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:mirror",
            "listener.name.short.oauthbearer.connections.max.reauth.ms": SESSION_MS,
        }
        for name in map(str.lower, listeners):
            config[f"listener.name.{name}.sasl.enabled.mechanisms"] = "OAUTHBEARER"
            handler = f"{PACKAGE}.OAuthBearerValidatorCallbackHandler"
            config[f"listener.name.{name}.oauthbearer.sasl.server.callback.handler.class"] = handler
            config[f"listener.name.{name}.oauthbearer.sasl.jaas.config"] = f"{MODULE} required;"
            prefix = f"listener.name.{name}.sasl.oauthbearer"
            # Kafka 4.1.0 uses the client's validator, which checks no signature, if the class is not set.
            config[f"{prefix}.jwt.validator.class"] = f"{PACKAGE}.BrokerJwtValidator"
            config[f"{prefix}.jwks.endpoint.url"] = provider.jwks_url
            config[f"{prefix}.expected.audience"] = AUDIENCE
            config[f"{prefix}.expected.issuer"] = ISSUER
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.jwks_url}"
        with KafkaCluster(config=config, listeners=listeners, broker_jvm={1: [allowed]}) as cluster:
            yield OAuthKafka(cluster, provider)


@pytest.fixture
def kafka(running: OAuthKafka) -> Iterator[OAuthKafka]:
    running.provider.requests.clear()
    yield running
    running.provider.lives_s = 3600


def login(kafka: OAuthKafka, listener: str = "OIDC", client: str = "mirror") -> dict[str, str]:
    """Return the properties of a login by the token endpoint, with the names of KIP-1139."""
    return {
        "bootstrap.servers": kafka.cluster.listener(listener),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{MODULE} required;",
        "sasl.login.callback.handler.class": f"{PACKAGE}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": kafka.provider.token_url,
        "sasl.oauthbearer.client.credentials.client.id": client,
        "sasl.oauthbearer.client.credentials.client.secret": SECRETS[client],
    }


def short_lived(kafka: OAuthKafka) -> dict[str, str]:
    """Return the properties of a login of this test alone, whose tokens and sessions end soon."""
    kafka.provider.lives_s = SESSION_MS / 1000
    return {**login(kafka, "SHORT"), "sasl.oauthbearer.scope": uuid.uuid4().hex}


def config_of(properties: Mapping[str, str]) -> ClientConfig:
    return ClientConfig.from_properties("source", properties)[0]


def load(kafka: OAuthKafka, topic: str, records: int) -> None:
    load_plain(kafka.cluster.bootstrap, topic, "none", 900, records * 1000, partitions=1)


def test_options_of_jaas_are_accepted_too(kafka: OAuthKafka) -> None:
    properties = login(kafka)
    for name in ("id", "secret"):
        del properties[f"sasl.oauthbearer.client.credentials.client.{name}"]
    options = f'clientId="mirror" clientSecret="{SECRETS["mirror"]}" scope="kafka"'
    properties["sasl.jaas.config"] = f"{MODULE} required {options};"
    with Cluster(config_of(properties)) as cluster:
        assert len(cluster.refresh().brokers) == 1
    assert kafka.provider.requests[-1].form["scope"] == "kafka"


def test_subject_of_the_token_is_the_principal(kafka: OAuthKafka, topic: str) -> None:
    create_topic(kafka.cluster.bootstrap, topic)
    for client, is_allowed in (("mirror", True), ("reader", False)):
        with Cluster(config_of(login(kafka, client=client))) as cluster:
            allowed = topic_operations(cluster, [topic])[topic]
            assert bool(allowed) is is_allowed


@pytest.mark.parametrize("claims", [{"aud": "another"}, {"iss": "https://another.example"}, {"sub": ""}])
def test_token_for_another_service_is_refused(
    kafka: OAuthKafka, tmp_path: Path, claims: dict[str, str]
) -> None:
    token = kafka.provider.token("mirror", **claims)
    assert "invalid_token" in refusal_of(kafka, tmp_path, token)


def test_token_with_another_signature_is_refused(kafka: OAuthKafka, tmp_path: Path) -> None:
    with IdentityProvider({}) as other:
        assert "invalid_token" in refusal_of(kafka, tmp_path, other.token("mirror"))


def test_expired_token_is_not_sent(kafka: OAuthKafka, tmp_path: Path) -> None:
    token = kafka.provider.token("mirror", exp=int(time.time()) - 60)
    assert "token that expired 6" in refusal_of(kafka, tmp_path, token)


def refusal_of(kafka: OAuthKafka, directory: Path, token: str) -> str:
    file = directory / "token"
    file.write_text(token)
    properties = {**login(kafka), "sasl.oauthbearer.token.endpoint.url": file.as_uri()}
    with Cluster(config_of(properties)) as cluster, pytest.raises(AccessRefused) as refused:
        cluster.refresh()
    assert token not in str(refused.value)
    return str(refused.value)


@pytest.mark.long
@pytest.mark.parametrize("source", ["endpoint", "file"])
def test_login_is_renewed_with_new_tokens_on_the_same_connection(
    kafka: OAuthKafka, tmp_path: Path, source: str
) -> None:
    properties = short_lived(kafka)
    file = tmp_path / "token"
    if source == "file":
        properties["sasl.oauthbearer.token.endpoint.url"] = file.as_uri()

    def renew_file() -> None:
        file.write_text(kafka.provider.token("mirror"))

    renew_file()
    with Cluster(config_of(properties)) as cluster:
        connection = cluster.connection(next(iter(cluster.refresh().brokers)))
        end = time.monotonic() + 2.5 * SESSION_MS / 1000
        renewed_at = time.monotonic()
        while time.monotonic() < end:
            if time.monotonic() > renewed_at + SESSION_MS / 2000:
                renew_file()
                renewed_at = time.monotonic()
            answer = connection.request(ApiKey.METADATA, topics=[], allow_auto_topic_creation=False)
            assert len(answer.brokers) == 1
            time.sleep(0.05)
        assert not connection.closed
    assert len(kafka.provider.requests) >= (3 if source == "endpoint" else 0)


def test_gateway_logs_in_by_tokens_for_its_clients(kafka: OAuthKafka, topic: str) -> None:
    load(kafka, topic, 100)
    upstream = ClientConfig.from_properties("upstream", login(kafka))[0]
    with Gateway(GatewaySettings("127.0.0.1", 0, upstream)) as gateway:
        assert digest_topic(str(gateway.bootstrap), topic) == digest_topic(kafka.cluster.bootstrap, topic)


CLASS = '''
import base64
import json
import urllib.request


class Vault:
    """Asks the endpoint in its own way."""

    def __init__(self, options):
        self._options = options

    def token(self):
        user = base64.b64encode(f"{self._options['user']}:{self._options['password']}".encode()).decode()
        request = urllib.request.Request(
            self._options["url"], b"grant_type=client_credentials", {"Authorization": f"Basic {user}"}
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["access_token"]
'''


def by_class(kafka: OAuthKafka, listener: str) -> dict[str, str]:
    """Return the properties of a login by the class above."""
    options = f'user="mirror" password="{SECRETS["mirror"]}" url="{kafka.provider.token_url}"'
    return {
        "bootstrap.servers": kafka.cluster.listener(listener),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{MODULE} required {options};",
        "sasl.login.callback.handler.class": "shoal_vault_of_test:Vault",
    }


@pytest.fixture
def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other processes import the class above."""
    (tmp_path / "shoal_vault_of_test.py").write_text(CLASS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))


@pytest.mark.usefixtures("vault")
def test_every_verb_logs_in_by_tokens(kafka: OAuthKafka, topic: str, tmp_path: Path) -> None:
    kafka.provider.lives_s = SESSION_MS / 1000
    files = (tmp_path / "from.properties", tmp_path / "to.properties")
    files[0].write_text(java_properties(login(kafka, "SHORT")))
    files[0].chmod(0o600)
    files[1].write_text(java_properties(by_class(kafka, "SHORT")))
    files[1].chmod(0o600)
    said = every_verb(kafka.cluster.bootstrap, files, topic, tmp_path)
    assert SECRETS["mirror"] not in said
    assert "eyJ" not in said  # how every signed token begins
    # The driver and each task ask for their own tokens.
    assert len(kafka.provider.requests) > 6


@pytest.mark.long
def test_job_of_spark_logs_in_by_tokens(kafka: OAuthKafka, topic: str, tmp_path: Path) -> None:
    load(kafka, topic, 1_000)
    file = tmp_path / "client.properties"
    file.write_text(java_properties(login(kafka)))
    file.chmod(0o600)
    said = copy_by_spark_job(kafka.cluster.bootstrap, file, topic)
    assert SECRETS["mirror"] not in said
