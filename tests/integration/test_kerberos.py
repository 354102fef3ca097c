"""GSSAPI with a real KDC, and at Kafka's own listener."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rig import KafkaCluster, create_topic, digest_topic, load_plain
from rig.cluster import java_properties
from rig.kerberos import PROGRAMS, REALM, SERVICE, KerberosRealm, in_realm, krb5_login, program
from rig.wait import wait_until
from shoal.client.broker_state import topic_operations
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.client.security.held import Keeper
from shoal.client.security.kerberos import by_ticket, tickets_of_keytab
from shoal.client.security.login import Exchange, KerberosLogin, LoginRefused, NoCredentials
from shoal.errors import AccessRefused, Disconnected
from shoal.gateway import Gateway, GatewaySettings
from shoal.mirroring.credentials import PROCESS_KEY, Credentials
from shoal.protocol.apis import ApiKey
from tests.integration.every_verb import every_verb
from tests.integration.shared_spark import shoal
from tests.integration.spark_job import copy_by_spark_job

#: Longer than the test's own timeouts, on a busy machine.
pytestmark = pytest.mark.timeout(900)

#: The longest session on the listener SHORT.
SESSION_MS = 5000

#: The lifetime of the tickets of BRIEF. A broker accepts an expired one for five minutes more, so tests count
#: the requests to the KDC.
BRIEF_LIVES_S = 8
BRIEF = "brief"


@dataclass(frozen=True, slots=True)
class KerberosKafka:
    """A broker in a realm, with the listeners KERBEROS and SHORT."""

    cluster: KafkaCluster
    realm: KerberosRealm
    keytabs: Mapping[str, Path]


def need(is_there: bool, name: str) -> None:
    """Skip the test, or fail in CI, if a program or package is missing."""
    if not is_there:
        reason = f"there is no {name} here; scripts/install-kerberos brings it"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


@pytest.fixture(scope="module")
def realm() -> Iterator[KerberosRealm]:
    need(importlib.util.find_spec("gssapi") is not None, "package gssapi")
    for name in PROGRAMS:
        need(shutil.which(program(name)) is not None, name)
    with KerberosRealm() as running, in_realm(running):
        yield running


@pytest.fixture(scope="module")
def keytabs(realm: KerberosRealm) -> dict[str, Path]:
    brief = realm.add(BRIEF, "-maxlife", f'"{BRIEF_LIVES_S} seconds"')
    return {"mirror": realm.add("mirror"), "reader": realm.add("reader"), BRIEF: brief}


@pytest.fixture(scope="module")
def kafka(realm: KerberosRealm, keytabs: dict[str, Path]) -> Iterator[KerberosKafka]:
    config = {
        **realm.broker_config("KERBEROS", "SHORT"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:mirror;User:{BRIEF}",
        "listener.name.short.gssapi.connections.max.reauth.ms": SESSION_MS,
    }
    listeners = {"KERBEROS": "SASL_PLAINTEXT", "SHORT": "SASL_PLAINTEXT"}
    with KafkaCluster(config=config, listeners=listeners, broker_jvm={1: [realm.jvm_option]}) as cluster:
        yield KerberosKafka(cluster, realm, keytabs)


def properties_of(bootstrap: str, **options: str) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": krb5_login(**options),
    }


def by_keytab(kafka: KerberosKafka, principal: str = "mirror", listener: str = "KERBEROS") -> dict[str, str]:
    """Return a login's properties as they stand in most documents for Java."""
    return properties_of(
        kafka.cluster.listener(listener),
        useKeyTab="true",
        storeKey="true",
        keyTab=str(kafka.keytabs[principal]),
        principal=f"{principal}@{REALM}",
    )


def by_cache(kafka: KerberosKafka, cache: Path, listener: str = "KERBEROS") -> dict[str, str]:
    bootstrap = kafka.cluster.listener(listener)
    return properties_of(bootstrap, useTicketCache="true", renewTGT="true", ticketCache=str(cache))


def config_of(properties: Mapping[str, str]) -> ClientConfig:
    return ClientConfig.from_properties("source", properties)[0]


def login_of(keytab: Path, principal: str) -> KerberosLogin:
    return login_with(useKeyTab="true", keyTab=str(keytab), principal=principal)


def cache_login(cache: Path, **more: str) -> KerberosLogin:
    return login_with(useTicketCache="true", ticketCache=str(cache), **more)


def login_with(**options: str) -> KerberosLogin:
    security = config_of(properties_of("localhost:9092", **options)).security
    assert security is not None
    assert isinstance(security.login, KerberosLogin)
    return security.login


def load(kafka: KerberosKafka, topic: str, records: int) -> None:
    load_plain(kafka.cluster.bootstrap, topic, "none", 900, records * 1000, partitions=1)


# At Kafka's listener


def test_principal_is_the_user(kafka: KerberosKafka, topic: str) -> None:
    create_topic(kafka.cluster.bootstrap, topic)
    for principal, is_allowed in (("mirror", True), ("reader", False)):
        with Cluster(config_of(by_keytab(kafka, principal))) as cluster:
            assert bool(topic_operations(cluster, [topic])[topic]) is is_allowed


def test_ticket_cache_logs_in(kafka: KerberosKafka, tmp_path: Path) -> None:
    kafka.realm.kinit("mirror", tmp_path / "cache")
    with Cluster(config_of(by_cache(kafka, tmp_path / "cache"))) as cluster:
        assert len(cluster.refresh().brokers) == 1


def test_keytab_serves_if_the_ticket_cache_has_no_ticket(kafka: KerberosKafka, tmp_path: Path) -> None:
    properties = by_keytab(kafka)
    more = f'useTicketCache=true ticketCache="{tmp_path / "none"}"'
    properties["sasl.jaas.config"] = properties["sasl.jaas.config"].replace(";", f" {more};")
    with Cluster(config_of(properties)) as cluster:
        assert len(cluster.refresh().brokers) == 1


def test_sealed_credentials_log_in_without_the_keytab_s_file(kafka: KerberosKafka, tmp_path: Path) -> None:
    keytab = tmp_path / "mirror.keytab"
    keytab.write_bytes(kafka.keytabs["mirror"].read_bytes())
    properties = by_keytab(kafka)
    properties["sasl.jaas.config"] = properties["sasl.jaas.config"].replace(
        str(kafka.keytabs["mirror"]), str(keytab)
    )
    config = config_of(properties)
    sealed = Credentials.of(config).seal(PROCESS_KEY)
    keytab.unlink()
    unsealed = Credentials.unseal(sealed, PROCESS_KEY).by_cluster["source"]
    with Cluster(replace(config, security=unsealed)) as cluster:
        assert len(cluster.refresh().brokers) == 1


@pytest.mark.long
def test_login_is_renewed_with_new_tickets_on_the_same_connection(kafka: KerberosKafka) -> None:
    before = kafka.realm.requests(BRIEF)
    with Cluster(config_of(by_keytab(kafka, BRIEF, "SHORT"))) as cluster:
        connection = cluster.connection(next(iter(cluster.refresh().brokers)))
        end = time.monotonic() + 2.5 * BRIEF_LIVES_S
        while time.monotonic() < end:
            answer = connection.request(ApiKey.METADATA, topics=[], allow_auto_topic_creation=False)
            assert len(answer.brokers) == 1
            time.sleep(0.05)
        assert not connection.closed
    assert kafka.realm.requests(BRIEF) - before >= 3


def test_gateway_logs_in_by_tickets_for_its_clients(kafka: KerberosKafka, topic: str) -> None:
    load(kafka, topic, 100)
    upstream = ClientConfig.from_properties("upstream", by_keytab(kafka))[0]
    with Gateway(GatewaySettings("127.0.0.1", 0, upstream)) as gateway:
        assert digest_topic(str(gateway.bootstrap), topic) == digest_topic(kafka.cluster.bootstrap, topic)


def test_every_verb_logs_in_by_tickets(kafka: KerberosKafka, topic: str, tmp_path: Path) -> None:
    kafka.realm.kinit("mirror", tmp_path / "cache")
    files = (tmp_path / "from.properties", tmp_path / "to.properties")
    files[0].write_text(java_properties(by_keytab(kafka, BRIEF, "SHORT")))
    files[1].write_text(java_properties(by_cache(kafka, tmp_path / "cache", "SHORT")))
    said = every_verb(kafka.cluster.bootstrap, files, topic, tmp_path)
    content = kafka.keytabs[BRIEF].read_bytes()
    state = b"".join(each.read_bytes() for each in (tmp_path / "state").rglob("*") if each.is_file())
    for secret in (content, base64.b64encode(content)):
        assert secret[-30:] not in said.encode() + state


def test_job_of_spark_logs_in_by_a_keytab(kafka: KerberosKafka, topic: str, tmp_path: Path) -> None:
    load(kafka, topic, 1_000)
    file = tmp_path / "client.properties"
    file.write_text(java_properties(by_keytab(kafka)))
    copy_by_spark_job(kafka.cluster.bootstrap, file, topic)


def test_mirror_without_a_ticket_ends_with_a_sentence(
    kafka: KerberosKafka, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(java_properties({**by_keytab(kafka), "sasl.kerberos.service.name": "another"}))
    clusters = ("--from-config", str(file), "--to-config", str(file), "--topics", topic)
    run = shoal("mirror", *clusters, "--rename", r"(.*)=copy.\1", "--dry-run", state=tmp_path)
    assert run.returncode == 2
    assert re.search(r"another/localhost.*another/localhost@", run.stderr)
    assert "sasl.kerberos.service.name" in run.stderr
    assert "Traceback" not in run.stderr


def test_kdc_that_does_not_answer_is_like_a_broker_that_does_not(kafka: KerberosKafka) -> None:
    keytab = kafka.realm.add("late")
    bootstrap = kafka.cluster.listener("KERBEROS")
    properties = properties_of(bootstrap, useKeyTab="true", keyTab=str(keytab), principal="late")
    kafka.realm.stop()
    try:
        with Cluster(config_of(properties)) as cluster, pytest.raises(Disconnected, match=r"KDC.*realm"):
            cluster.refresh()
    finally:
        kafka.realm.start()

    def is_in() -> bool:
        # The pause after a failure of the KDC is a second.
        with contextlib.suppress(Disconnected), Cluster(config_of(properties)) as cluster:
            return len(cluster.refresh().brokers) == 1
        return False

    wait_until(is_in, "a login with the KDC")


@pytest.mark.parametrize("shift", ["-1h", "+1h"])
def test_broker_with_another_clock_than_the_kdc_refuses_the_ticket(
    kafka: KerberosKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: str
) -> None:
    need(shutil.which("faketime") is not None, "faketime")
    config = tmp_path / "krb5.conf"
    # libkrb5's default: the client has the KDC's time.
    config.write_text(kafka.realm.config.read_text().replace("kdc_timesync = 0", "kdc_timesync = 1"))
    keytab = kafka.realm.add(f"shifted-{'ahead' if shift.startswith('+') else 'behind'}")
    options = {"useKeyTab": "true", "keyTab": str(keytab), "principal": keytab.stem}
    properties = properties_of(kafka.cluster.listener("KERBEROS"), **options)
    kafka.realm.stop()
    kafka.realm.shift = shift
    kafka.realm.start()
    try:
        monkeypatch.setenv("KRB5_CONFIG", str(config))
        with (
            Cluster(config_of(properties)) as cluster,
            pytest.raises(AccessRefused, match=r"Kerberos.*ticket"),
        ):
            cluster.refresh()
    finally:
        kafka.realm.stop()
        kafka.realm.shift = None
        kafka.realm.start()


def test_broker_with_another_key_refuses_the_ticket(kafka: KerberosKafka) -> None:
    # A principal without a ticket for the old key.
    keytab = kafka.realm.add("newcomer")
    bootstrap = kafka.cluster.listener("KERBEROS")
    properties = properties_of(bootstrap, useKeyTab="true", keyTab=str(keytab), principal="newcomer")
    kafka.realm.change_key(SERVICE)
    try:
        with Cluster(config_of(properties)) as cluster, pytest.raises(AccessRefused) as refused:
            cluster.refresh()
        sentence = (
            rf"does not accept the Kerberos ticket of 'newcomer@{REALM}' for '{SERVICE}' by GSSAPI. Comp"
        )
        assert re.search(sentence, str(refused.value))
    finally:
        # The broker reads its keytab at each login.
        kafka.realm.keytab(SERVICE)
    with Cluster(config_of(properties)) as cluster:
        assert len(cluster.refresh().brokers) == 1


# With the KDC alone


def failure_of(login: KerberosLogin) -> NoCredentials:
    with pytest.raises(NoCredentials) as failure:
        next(by_ticket(login, "localhost", Keeper(tickets_of_keytab)))
    return failure.value


def test_principal_that_kdc_or_keytab_does_not_have_is_named(
    realm: KerberosRealm, keytabs: dict[str, Path]
) -> None:
    keytab = realm.add("gone")
    realm.remove("gone")
    assert f"'gone@{REALM}'" in failure_of(login_of(keytab, f"gone@{REALM}")).reason
    reason = failure_of(login_of(keytabs["mirror"], "somebody")).reason
    assert all(each in reason for each in ("somebody", f"'{keytabs['mirror']}'", "keyTab"))


def test_old_keytab_is_named_and_a_new_one_is_read(realm: KerberosRealm, tmp_path: Path) -> None:
    keytab = realm.add("rotated")
    mine = tmp_path / "keytab"
    mine.write_bytes(keytab.read_bytes())
    login = login_of(mine, "rotated")
    realm.change_key("rotated")
    assert f"'{mine}'" in failure_of(login).reason
    mine.write_bytes(realm.keytab("rotated").read_bytes())
    assert next(by_ticket(login, "localhost", Keeper(tickets_of_keytab)))


def test_refused_tickets_are_replaced_after_five_minutes(realm: KerberosRealm) -> None:
    login = login_of(realm.add("refused"), "refused")
    now = 1000.0
    tickets = Keeper(tickets_of_keytab, lambda: now)
    for seconds, requests in ((0, 1), (299, 1), (2, 2), (1, 2)):
        now += seconds
        exchange = by_ticket(login, "localhost", tickets)
        next(exchange)
        with pytest.raises(LoginRefused):
            exchange.throw(LoginRefused())
        tickets.current(login)
        assert realm.requests("refused") == requests


@pytest.mark.parametrize("shift", ["+1h", "-1h"])
def test_other_clock_of_the_kdc_is_named(shift: str, realm: KerberosRealm) -> None:
    need(shutil.which("faketime") is not None, "faketime")
    with KerberosRealm(shift=shift) as other, in_realm(other):
        reason = failure_of(login_of(other.add("mirror"), "mirror")).reason
    assert "clocks" in reason


def test_missing_configuration_of_kerberos_is_named(
    realm: KerberosRealm, keytabs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    reason = failure_of(login_of(keytabs["mirror"], "mirror")).reason
    assert "default_realm" in reason


def test_ticket_cache_without_tickets_is_named(realm: KerberosRealm, tmp_path: Path) -> None:
    reason = failure_of(cache_login(tmp_path / "none")).reason
    assert all(each in reason for each in (f"{tmp_path}/none'", "kinit"))


def test_ticket_cache_of_another_principal_is_named(realm: KerberosRealm, tmp_path: Path) -> None:
    realm.add("one")
    realm.kinit("one", tmp_path / "cache")
    reason = failure_of(cache_login(tmp_path / "cache", principal="two")).reason
    assert "sasl.jaas.config" in reason


def test_expired_ticket_cache_is_named_and_a_new_one_is_read(realm: KerberosRealm, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    realm.add("expiring")
    login = cache_login(cache)
    realm.kinit("expiring", cache, "-l", "2s")
    assert next(by_ticket(login, "localhost", Keeper(tickets_of_keytab)))
    deadline = time.monotonic() + 60
    while (reason := reason_of(login)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert re.search(r"cache'.*\bkinit$", reason)
    realm.kinit("expiring", cache)
    assert next(by_ticket(login, "localhost", Keeper(tickets_of_keytab)))


def reason_of(login: KerberosLogin) -> str | None:
    try:
        next(by_ticket(login, "localhost", Keeper(tickets_of_keytab)))
    except NoCredentials as error:
        return error.reason
    return None


class Acceptor:
    """The broker's side of an exchange, by its keytab."""

    def __init__(self, realm: KerberosRealm) -> None:
        import gssapi

        store = {"keytab": f"FILE:{realm.broker_keytab}"}
        name = gssapi.Name(SERVICE, gssapi.NameType.kerberos_principal)
        self._context: Any = gssapi.SecurityContext(
            creds=gssapi.Credentials(name=name, usage="accept", store=store), usage="accept"
        )

    def proof(self, token: bytes) -> bytes:
        return bytes(self._context.step(token))

    def layers(self, message: bytes) -> bytes:
        return bytes(self._context.wrap(message, False).message)

    def chosen(self, token: bytes) -> bytes:
        return bytes(self._context.unwrap(token).message)


def exchange_with(realm: KerberosRealm, keytabs: dict[str, Path]) -> tuple[Exchange, Acceptor]:
    exchange = by_ticket(login_of(keytabs["mirror"], "mirror"), "localhost", Keeper(tickets_of_keytab))
    return exchange, Acceptor(realm)


def test_exchange_has_three_legs_without_a_layer(realm: KerberosRealm, keytabs: dict[str, Path]) -> None:
    exchange, broker = exchange_with(realm, keytabs)
    assert exchange.send(broker.proof(next(exchange))) == b""
    # All three layers, and messages of 64 KiB.
    assert broker.chosen(exchange.send(broker.layers(b"\x07\x01\x00\x00"))) == b"\x01\x00\x00\x00"
    with pytest.raises(StopIteration):
        exchange.send(b"")


@pytest.mark.parametrize("token", [b"", b"no proof", b"\x60\x03abc"])
def test_broker_without_a_proof_is_refused(
    realm: KerberosRealm, keytabs: dict[str, Path], token: bytes
) -> None:
    exchange, _ = exchange_with(realm, keytabs)
    next(exchange)
    with pytest.raises(ValueError, match=rf"prove.*'{SERVICE}'"):
        exchange.send(token)


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (b"\x06\x01\x00\x00", r"security.*SASL"),  # a layer is required
        *((each, r"fit.*mechanism") for each in (b"", b"\x01\x00\x00", b"\x01\x00\x00\x00\x00")),
    ],
)
def test_unusable_message_about_layers_is_refused(
    realm: KerberosRealm, keytabs: dict[str, Path], message: bytes, sentence: str
) -> None:
    exchange, broker = exchange_with(realm, keytabs)
    exchange.send(broker.proof(next(exchange)))
    with pytest.raises(ValueError, match=sentence):
        exchange.send(broker.layers(message))
