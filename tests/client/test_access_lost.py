"""A login that a broker accepted before, and refuses now, is waited for."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from shoal.client import cluster as cluster_module
from shoal.client.cluster import Cluster, is_transient
from shoal.client.config import ClientConfig
from shoal.client.connection import Connection
from shoal.client.refused_logins import RefusedLogins
from shoal.client.security import PasswordLogin, Security
from shoal.errors import AccessRefused, Disconnected, ShoalError
from shoal.mirroring.driver.group_lock import GroupLock
from shoal.net.address import Address
from shoal.timing import Clock, Timing
from shoal_broker import Broker
from tests.world.clusters import config_of
from tests.world.faults import second_node
from tests.world.waiting import wait_until

SECURITY = Security(login=PasswordLogin("SCRAM-SHA-256", "mirror", "x"))


class LoginService:
    """Decides whether a broker accepts logins."""

    def __init__(self) -> None:
        self.accepts = True
        self.attempts = 0
        self.reason, self.refuses_password = "the login of 'mirror' failed", True
        self.monotonic, self.wall = time.monotonic, time.time
        self.refused = RefusedLogins(Clock(lambda: self.monotonic(), lambda: self.wall()))

    def connect(self, address: Address, *, security: Security, **options: object) -> Connection:
        self.attempts += 1
        if not self.accepts:
            raise AccessRefused(str(address), self.reason, is_login=self.refuses_password)
        return Connection(address, client_id="me", timeout_s=20.0)


@pytest.fixture
def logins(monkeypatch: pytest.MonkeyPatch) -> LoginService:
    service = LoginService()
    monkeypatch.setattr(cluster_module, "Connection", service.connect)
    monkeypatch.setattr(cluster_module, "logins", service.refused)
    return service


def refusal(config: ClientConfig) -> ShoalError:
    with Cluster(config) as cluster, pytest.raises(ShoalError) as refused:
        cluster.refresh([])
    return refused.value


def test_login_refused_after_it_worked_is_retried_and_named(broker: Broker, logins: LoginService) -> None:
    config = ClientConfig("source", (Address(broker.host, broker.port),), security=SECURITY)
    with Cluster(config) as cluster:
        cluster.refresh([])
    logins.accepts = False
    error = refusal(config)
    assert isinstance(error, Disconnected)
    assert is_transient(error)
    time_of_day = r"\d\d:\d\d:\d\d UTC"
    assert re.search(rf"'mirror'.*\bonce\b.*{time_of_day}.*{time_of_day}", str(error))
    logins.accepts = True
    wait_until(lambda: is_let_in(config), 10)


def is_let_in(config: ClientConfig) -> bool:
    with suppress(Disconnected), Cluster(config) as cluster:
        cluster.refresh([])
        return True
    return False


def test_refused_login_is_retried_with_doubling_pauses(
    broker: Broker, logins: LoginService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many connections want to log in: many refusals lock an account."""
    now = time.monotonic()
    logins.monotonic = lambda: now
    monkeypatch.setattr("shoal.client.backoff.random.uniform", lambda least, most: most)
    config = ClientConfig("source", (Address(broker.host, broker.port),), security=SECURITY)
    assert is_let_in(config)
    logins.accepts, logins.attempts = False, 0
    pauses = []
    for attempt in range(1, 8):
        for _ in range(5):
            assert not is_let_in(config)
        assert logins.attempts == attempt
        since = now
        while logins.attempts == attempt:
            now += 0.5
            refusal(config)
        pauses.append(now - since)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    assert re.search(r"refused.*8", str(refusal(config)))
    logins.accepts = True
    now += 30
    assert is_let_in(config)
    logins.accepts = False
    assert re.search(r"\bonce\b", str(refusal(config)))


def test_error_stays_the_same_until_the_next_attempt(broker: Broker, logins: LoginService) -> None:
    """Another one would be printed as news."""
    now = time.time()
    logins.wall = lambda: now
    config = ClientConfig("source", (Address(broker.host, broker.port),), security=SECURITY)
    assert is_let_in(config)
    logins.accepts = False
    first = str(refusal(config))
    now += 0.7
    assert str(refusal(config)) == first


def test_refused_login_does_not_delay_other_credentials_and_brokers(
    broker: Broker, logins: LoginService
) -> None:
    config = ClientConfig("source", (Address(broker.host, broker.port),), security=SECURITY)
    assert is_let_in(config)
    logins.accepts = False
    assert not is_let_in(config)
    logins.accepts = True
    assert is_let_in(
        replace(config, security=Security(login=PasswordLogin("SCRAM-SHA-256", "mirror", "renewed")))
    )
    assert is_let_in(replace(config, bootstrap=(Address("localhost", broker.port),)))


def test_login_that_never_worked_raises(broker: Broker, logins: LoginService) -> None:
    config = ClientConfig("source", (Address(broker.host, broker.port),), security=SECURITY)
    with Cluster(config) as cluster:
        cluster.refresh([])
    logins.accepts = False
    other = replace(config, security=Security(login=PasswordLogin("SCRAM-SHA-256", "mirror", "another")))
    assert isinstance(refusal(other), AccessRefused)


def test_login_that_worked_in_the_driver_is_retried_in_tasks(broker: Broker, logins: LoginService) -> None:
    logins.accepts = False
    config = ClientConfig("source", (Address(broker.host, broker.port),), security=SECURITY)
    assert isinstance(refusal(replace(config, security=replace(SECURITY, has_worked=True))), Disconnected)


def by_another_name(broker: Broker) -> ClientConfig:
    """Return a configuration whose bootstrap server has another address than the broker advertises."""
    return ClientConfig("source", (Address("localhost", broker.port),), security=SECURITY)


def test_login_that_worked_is_retried_at_a_new_broker_of_the_cluster(
    broker: Broker, logins: LoginService
) -> None:
    with Cluster(by_another_name(broker)) as cluster:
        cluster.refresh([])
        logins.accepts = False
        with pytest.raises(Disconnected, match=r"'mirror'.*accepted"):
            cluster.connect(broker.node_id)


def test_login_that_worked_for_another_cluster_raises(broker: Broker, logins: LoginService) -> None:
    assert is_let_in(by_another_name(broker))
    logins.accepts = False
    config = ClientConfig("destination", (Address(broker.host, broker.port),), security=SECURITY)
    assert isinstance(refusal(config), AccessRefused)


def test_certificate_of_a_new_broker_is_refused(broker: Broker, logins: LoginService) -> None:
    """Each broker has a certificate of its own."""
    with Cluster(by_another_name(broker)) as cluster:
        cluster.refresh([])
        logins.accepts = False
        logins.reason, logins.refuses_password = "its certificate is not signed by one that we trust", False
        with pytest.raises(AccessRefused, match=r"certificate.*signed"):
            cluster.connect(broker.node_id)


def test_login_refused_by_a_moved_coordinator_keeps_the_group(broker: Broker, logins: LoginService) -> None:
    often = Timing(heartbeat_interval_s=0.02)
    renewed: list[object] = []
    with second_node(broker) as second:
        config = replace(config_of("source", broker, second), security=SECURITY)
        with GroupLock(config, "group", "first", lambda *each: renewed.append(each), often) as lock:
            lock.acquire([], patience_s=20.0)
            logins.accepts, logins.attempts = False, 0
            broker.stop()
            second.groups.open()
            wait_until(lambda: logins.attempts >= 2 or lock.failure is not None)
            assert lock.failure is None
            logins.accepts = True
            beats = len(renewed)
            wait_until(lambda: len(renewed) > beats + 2)
            assert lock.failure is None
