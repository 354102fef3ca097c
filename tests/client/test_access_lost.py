"""A login that a broker accepted before, and refuses now, is waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.broker import Broker
from shoal.client import cluster as cluster_module
from shoal.client.cluster import Cluster, is_transient
from shoal.client.config import ClientConfig
from shoal.client.connection import Address, Connection
from shoal.client.security import Security
from shoal.errors import AccessRefused, Disconnected, ShoalError

SECURITY = Security(tls=False, mechanism="SCRAM-SHA-256", username="mirror", password="x")


class LoginService:
    """Decides whether a broker accepts logins."""

    def __init__(self) -> None:
        self.accepts = True

    def connect(self, address: Address, *, security: Security, **options: object) -> Connection:
        if not self.accepts:
            raise AccessRefused(str(address), "the login of 'mirror' failed")
        return Connection(address, client_id="me", timeout_s=20.0)


@pytest.fixture
def logins(monkeypatch: pytest.MonkeyPatch) -> LoginService:
    service = LoginService()
    monkeypatch.setattr(cluster_module, "Connection", service.connect)
    monkeypatch.setattr(cluster_module, "_accepted", set())
    return service


def refusal(config: ClientConfig) -> ShoalError:
    with Cluster(config) as cluster, pytest.raises(ShoalError) as refused:
        cluster.refresh([])
    return refused.value


def test_login_that_worked_before_is_waited_for_and_named(broker: Broker, logins: LoginService) -> None:
    config = ClientConfig("source", (Address(broker.host, broker.port),), security=SECURITY)
    with Cluster(config) as cluster:
        cluster.refresh([])
    logins.accepts = False
    error = refusal(config)
    assert isinstance(error, Disconnected)
    assert is_transient(error)
    assert "the login of 'mirror' failed (it was accepted before)" in str(error)
    logins.accepts = True
    with Cluster(config) as cluster:
        cluster.refresh([])


def test_login_that_never_worked_is_refused(broker: Broker, logins: LoginService) -> None:
    config = ClientConfig("source", (Address(broker.host, broker.port),), security=SECURITY)
    with Cluster(config) as cluster:
        cluster.refresh([])
    logins.accepts = False
    other = replace(config, security=replace(SECURITY, password="another"))
    assert isinstance(refusal(other), AccessRefused)


def test_login_of_a_task_worked_in_the_driver(broker: Broker, logins: LoginService) -> None:
    logins.accepts = False
    config = ClientConfig("source", (Address(broker.host, broker.port),), security=SECURITY)
    assert isinstance(refusal(replace(config, security=replace(SECURITY, has_worked=True))), Disconnected)
