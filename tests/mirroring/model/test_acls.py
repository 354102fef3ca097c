"""The ACLs that a mirror needs, in sentences and as commands (that they suffice: tests/integration)."""

from __future__ import annotations

import re

from shoal.client.config import ClientConfig
from shoal.mirroring.model.acls import Acl, acl_commands, acl_sentences, needed_acls
from shoal.mirroring.model.follow_options import FollowOptions, Sync
from shoal.net.address import Address

CLIENTS = [
    ClientConfig("source", (Address("a", 1),)),
    ClientConfig("destination", (Address("b", 1), Address("b", 2))),
]

ACLS = needed_acls(
    {"a": "west.a", "b": "west.b", "c": "west.c"},
    "a group's",
    created=["west.a"],
    grown=["west.b"],
    before_2_8=False,
)


def test_resources_with_the_same_operations_share_a_sentence() -> None:
    reading, writing = ["READ", "DESCRIBE_CONFIGS"], ["WRITE", "READ", "DESCRIBE_CONFIGS"]
    assert [parameters(each) for each in acl_sentences(ACLS)] == [
        ("source", reading, "topics a, b, c"),
        ("source", ["READ"], "group a group's"),
        ("destination", [*writing, "CREATE"], "topic west.a"),
        ("destination", [*writing, "ALTER"], "topic west.b"),
        ("destination", writing, "topic west.c"),
        ("destination", ["DESCRIBE_CONFIGS"], "the cluster"),
    ]


def parameters(sentence: str) -> tuple[str, list[str], str]:
    """Return the cluster, the operations and the resources that a sentence names."""
    cluster, _, rest = sentence.partition(": ")
    operations, _, resources = rest.partition(" on ")
    return cluster, re.findall("[A-Z_]+", operations), resources


def test_acl_command_grants_the_operations_to_the_shell_s_principal() -> None:
    grant = 'kafka-acls.sh --bootstrap-server {} --add --allow-principal "$PRINCIPAL" --operation'
    source, destination = grant.format("a:1"), grant.format("b:1,b:2")
    commands = acl_commands(ACLS, CLIENTS)
    assert commands[0] == f"{source} Read --operation DescribeConfigs --topic a --topic b --topic c"
    assert commands[1] == f"{source} Read --group 'a group'\"'\"'s'"
    assert commands[-1] == f"{destination} DescribeConfigs --cluster"
    assert len(commands) == len(acl_sentences(ACLS))


def test_brokers_before_2_8_require_idempotent_write() -> None:
    acls = needed_acls({"a": "a"}, "g", created=(), grown=(), before_2_8=True)
    assert acls[-1] == Acl("destination", "cluster", "kafka-cluster", "IDEMPOTENT_WRITE")
    assert re.search(r"DESCRIBE_CONFIGS.*IDEMPOTENT_WRITE", acl_sentences(acls)[-1])
    assert acl_commands(acls, CLIENTS)[-1].endswith("DescribeConfigs --operation IdempotentWrite --cluster")


def test_consumer_groups_are_read_at_the_source_and_committed_at_the_destination() -> None:
    acls = needed_acls(
        {"a": "a"}, "g", created=(), grown=(), before_2_8=False, consumer_groups=["billing", "audit"]
    )
    sentences = acl_sentences(acls)
    assert any(re.search(r"source.*DESCRIBE.*billing, audit", each) for each in sentences)
    assert any(re.search(r"destination.*READ.*billing, audit", each) for each in sentences)
    command = next(each for each in acl_commands(acls, CLIENTS) if "audit" in each and "Describe" in each)
    assert command.endswith("--operation Describe --group billing --group audit")


def test_configurations_and_acls_that_follow_need_to_be_changed_at_the_destination() -> None:
    follow = FollowOptions(sync=frozenset({Sync.CONFIGS, Sync.ACLS}))
    acls = needed_acls({"a": "b"}, "g", created=["b"], grown=(), before_2_8=False, follow=follow)
    assert [parameters(each) for each in acl_sentences(acls)] == [
        ("source", ["READ", "DESCRIBE_CONFIGS"], "topic a"),
        ("source", ["READ"], "group g"),
        ("destination", ["WRITE", "READ", "ALTER_CONFIGS", "CREATE"], "topic b"),
        ("destination", ["DESCRIBE_CONFIGS", "ALTER"], "the cluster"),
        ("source", ["DESCRIBE"], "the cluster"),
    ]
