"""A right that is missing while a mirror runs: the stop has the principal, the right and the command."""

from __future__ import annotations

import dataclasses

import pytest

from shoal.client.config import ClientConfig
from shoal.client.security.access import PasswordLogin, Security
from shoal.error_codes import ErrorCode
from shoal.mirroring.model.acls import THE_CLUSTER, Acl
from shoal.mirroring.model.copy_options import CopySettings
from shoal.protocol.apis import ApiKey
from tests.two_brokers import History, TwoBrokers


@pytest.mark.parametrize(
    ("api", "right", "operation"),
    [(ApiKey.FETCH, "READ on topic topic", "Read"), (ApiKey.PRODUCE, "WRITE on topic topic", "Write")],
)
def test_stop_has_the_right_the_next_try_and_the_command(
    brokers: TwoBrokers, history: History, api: ApiKey, right: str, operation: str
) -> None:
    history.plain(1)
    broker = brokers.source if api is ApiKey.FETCH else brokers.destination
    broker.faults.add(api, times=None, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    (stopped,) = brokers.with_settings(retry_stopped_s=300.0).run().stopped
    assert stopped.reason.endswith(
        f": allow {right} to the principal of this mirror. The mirror tries again every 5 minutes, and on "
        f"SIGUSR1. As an administrator: kafka-acls.sh --bootstrap-server {broker.bootstrap} --add "
        f'--allow-principal "$PRINCIPAL" --operation {operation} --topic topic'
    )


def test_remedy_for_a_login_has_its_principal_and_the_prefix_of_an_expression(brokers: TwoBrokers) -> None:
    source: ClientConfig = brokers.settings.source
    login = Security(login=PasswordLogin("PLAIN", "bob", "secret"))
    settings: CopySettings = dataclasses.replace(
        brokers.settings,
        source=dataclasses.replace(source, security=login),
        prefixes=(("shop.", "copy.shop."),),
    )
    assert settings.remedy_by(Acl("source", "topic", "shop.orders", "READ")) == (
        "allow READ on topic shop.orders to User:bob. As an administrator: kafka-acls.sh "
        f"--bootstrap-server {source.servers} --command-config source-admin.properties --add "
        "--allow-principal User:bob --operation Read --topic shop. --resource-pattern-type prefixed"
    )


def test_remedy_for_the_cluster_names_its_side(brokers: TwoBrokers) -> None:
    settings: CopySettings = brokers.settings
    remedy = settings.remedy_by(Acl("destination", "cluster", THE_CLUSTER, "IDEMPOTENT_WRITE"))
    assert remedy.startswith("allow IDEMPOTENT_WRITE on the destination cluster to ")
    assert remedy.endswith("--operation IdempotentWrite --cluster")
