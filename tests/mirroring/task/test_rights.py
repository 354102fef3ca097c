"""A right that is missing while a mirror runs: the stop names the principal, the right and the next try."""

from __future__ import annotations

import dataclasses

import pytest

from shoal.client.config import ClientConfig
from shoal.client.security.access import PasswordLogin, Security
from shoal.error_codes import ErrorCode
from shoal.mirroring.model.copy_options import CopySettings
from shoal.protocol.apis import ApiKey
from tests.two_brokers import History, TwoBrokers


@pytest.mark.parametrize(
    ("api", "right"), [(ApiKey.FETCH, "READ on topic topic"), (ApiKey.PRODUCE, "WRITE on the destination")]
)
def test_stop_names_the_right_and_the_next_try(
    brokers: TwoBrokers, history: History, api: ApiKey, right: str
) -> None:
    history.plain(1)
    broker = brokers.source if api is ApiKey.FETCH else brokers.destination
    broker.faults.add(api, times=None, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    (stopped,) = brokers.with_settings(retry_stopped_s=300.0).run().stopped
    assert stopped.reason.endswith(
        "to the principal of this mirror (the same command with --dry-run prints the kafka-acls.sh line). "
        "The mirror tries again every 5 minutes, and on SIGUSR1"
    )
    assert f"allow {right}" in stopped.reason


def test_remedy_names_the_principal_of_a_login(brokers: TwoBrokers) -> None:
    source: ClientConfig = brokers.settings.source
    login = Security(login=PasswordLogin("PLAIN", "bob", "secret"))
    settings: CopySettings = brokers.settings
    assert settings.remedy_by("READ", dataclasses.replace(source, security=login)) == "allow READ to User:bob"
