"""A right that is missing while a mirror runs: the stop has the principal, the right and the command."""

from __future__ import annotations

import dataclasses

import pytest

from shoal.client.config import ClientConfig
from shoal.client.security.login import PasswordLogin, Security
from shoal.error_codes import ErrorCode
from shoal.mirroring.model.acls import THE_CLUSTER, Acl
from shoal.mirroring.model.copy_options import CopySettings
from shoal.protocol.apis import ApiKey
from tests.world.clusters import TwoBrokers
from tests.world.history import History


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
    (stopped,) = brokers.with_settings(tries_again=True).run().stopped
    advice, _, command = stopped.reason.partition("kafka-acls.sh ")
    assert all(each in advice for each in (f"allow {right} ", "5 minutes", "SIGUSR1"))
    assert f"--bootstrap-server {broker.bootstrap} --add" in command
    assert command.endswith(f" --operation {operation} --topic topic")


def test_remedy_for_a_login_has_its_principal_and_the_prefix_of_an_expression(brokers: TwoBrokers) -> None:
    source: ClientConfig = brokers.settings.source
    login = Security(login=PasswordLogin("PLAIN", "bob", "secret"))
    settings: CopySettings = dataclasses.replace(
        brokers.settings,
        source=dataclasses.replace(source, security=login),
        prefixes=(("shop.", "copy.shop."),),
    )
    remedy = settings.remedy_by(Acl("source", "topic", "shop.orders", "READ"))
    advice, _, command = remedy.partition("kafka-acls.sh ")
    assert all(each in advice for each in ("READ", "topic shop.orders", "User:bob"))
    assert f"--bootstrap-server {source.servers} --command-config source-admin.properties" in command
    assert "--allow-principal User:bob --operation Read --topic shop. " in command
    assert command.endswith("--resource-pattern-type prefixed")


def test_remedy_for_the_cluster_names_its_side(brokers: TwoBrokers) -> None:
    settings: CopySettings = brokers.settings
    remedy = settings.remedy_by(Acl("destination", "cluster", THE_CLUSTER, "IDEMPOTENT_WRITE"))
    assert all(each in remedy for each in ("IDEMPOTENT_WRITE", "destination"))
    assert remedy.endswith("--operation IdempotentWrite --cluster")
