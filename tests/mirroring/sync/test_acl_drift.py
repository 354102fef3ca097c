"""Which ACLs the destination gets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.client.acls import AclBinding, AclOperation, PatternType, Resource
from shoal.mirroring.model.follow_options import KeptAcls
from shoal.mirroring.sync.acl_drift import AclDrift, acl_drift, translate_acls

NAMES = {"orders": "orders", "orders.eu": "orders.eu", "payments": "payments"}
COPIES = {name: f"copy.{name}" for name in NAMES}
SHUFFLED = {"orders": "copy.orders", "orders.eu": "eu.orders", "payments": "payments"}

MAY_READ = AclBinding(
    Resource.TOPIC, PatternType.LITERAL, "orders", "User:alice", "*", AclOperation.READ, True
)
MAY_WRITE = replace(MAY_READ, operation=AclOperation.WRITE)
MAY_ALL = replace(MAY_READ, operation=AclOperation.ALL)
MAY_DESCRIBE = replace(MAY_READ, operation=AclOperation.DESCRIBE)
MAY_NOT = replace(MAY_READ, allows=False)
OF_PREFIX = replace(MAY_READ, pattern=PatternType.PREFIXED, name="orders")
OF_ALL = replace(MAY_READ, name="*")
OF_GROUP = replace(MAY_READ, resource=Resource.GROUP, name="app")


def translated(
    *bindings: AclBinding, names: dict[str, str] = COPIES, kept: KeptAcls = KeptAcls.READ
) -> set[AclBinding]:
    return set(translate_acls(bindings, names, "shoal-1", kept))


def named(binding: AclBinding, *names: str) -> set[AclBinding]:
    return {replace(binding, name=name) for name in names}


def test_literal_acl_is_that_of_the_copy() -> None:
    assert translated(MAY_READ) == named(MAY_READ, "copy.orders")


def test_acl_of_a_topic_that_is_not_mirrored_is_not_kept() -> None:
    assert translated(replace(MAY_READ, name="other"), replace(OF_PREFIX, name="other")) == set()


def test_denial_is_kept() -> None:
    assert translated(MAY_NOT) == named(MAY_NOT, "copy.orders")


def test_principal_and_host_are_kept() -> None:
    binding = replace(MAY_READ, principal="User:CN=b", host="10.0.0.1")
    assert translated(binding) == named(binding, "copy.orders")


def test_prefix_stays_if_topics_keep_their_names() -> None:
    assert translated(OF_PREFIX, names=NAMES) == {OF_PREFIX}


def test_prefix_is_renamed_if_all_of_its_topics_are_alike() -> None:
    assert translated(OF_PREFIX) == named(OF_PREFIX, "copy.orders")


def test_prefix_becomes_names_if_its_topics_are_renamed_apart() -> None:
    assert translated(OF_PREFIX, names=SHUFFLED) == named(MAY_READ, "copy.orders", "eu.orders")


def test_prefix_that_would_cover_all_topics_becomes_names() -> None:
    names = {"old.a": "a", "old.b": "b"}
    assert translated(replace(OF_PREFIX, name="old."), names=names) == named(MAY_READ, "a", "b")


def test_acl_of_all_topics_becomes_one_of_each_mirrored_topic() -> None:
    assert translated(OF_ALL) == named(MAY_READ, *COPIES.values())


def test_literal_star_is_no_prefix() -> None:
    assert translated(replace(OF_ALL, pattern=PatternType.PREFIXED)) == set()


def test_read_keeps_no_other_operation() -> None:
    others = {replace(MAY_READ, operation=each) for each in AclOperation} - {MAY_READ, MAY_DESCRIBE, MAY_ALL}
    assert translated(*others) == set()


def test_read_keeps_read_and_describe_of_all_operations() -> None:
    assert translated(MAY_ALL) == named(MAY_READ, "copy.orders") | named(MAY_DESCRIBE, "copy.orders")


@pytest.mark.parametrize("operation", AclOperation)
def test_all_keeps_each_operation_of_topics(operation: AclOperation) -> None:
    binding = replace(MAY_READ, operation=operation)
    assert translated(binding, kept=KeptAcls.ALL) == named(binding, "copy.orders")


@pytest.mark.parametrize("kept", KeptAcls)
def test_acl_of_a_group_keeps_its_name_and_lets_it_read(kept: KeptAcls) -> None:
    may_delete = replace(OF_GROUP, operation=AclOperation.DELETE)
    assert translated(OF_GROUP, may_delete, kept=kept) == {OF_GROUP}


@pytest.mark.parametrize("pattern", PatternType)
def test_acl_of_groups_by_pattern_is_kept(pattern: PatternType) -> None:
    binding = replace(OF_GROUP, pattern=pattern, name="*" if pattern is PatternType.LITERAL else "app-")
    assert translated(binding) == {binding}


def test_acl_of_the_mirror_group_is_not_kept() -> None:
    assert translated(replace(OF_GROUP, name="shoal-1")) == set()


def drift(wanted: set[AclBinding], present: set[AclBinding], kept: KeptAcls = KeptAcls.READ) -> AclDrift:
    return acl_drift(wanted, present, frozenset(NAMES), kept)


def test_drift_has_denials_first() -> None:
    assert drift({MAY_READ, MAY_NOT}, set()).missing == (MAY_NOT, MAY_READ)


def test_drift_of_equal_acls_is_empty() -> None:
    found = drift({MAY_READ}, {MAY_READ, OF_GROUP, replace(MAY_READ, name="other")})
    assert (found.missing, found.surplus) == ((), ())


def test_drift_names_an_acl_of_a_copy_that_the_source_lacks() -> None:
    bob = replace(MAY_READ, principal="User:bob")
    assert drift({MAY_READ}, {MAY_READ, bob}).surplus == (bob,)


def test_drift_of_a_topic_whose_last_acl_was_deleted_at_the_source_names_that_of_the_copy() -> None:
    assert drift(set(), {MAY_READ, OF_GROUP, OF_ALL}).surplus == (MAY_READ,)


def test_drift_of_a_prefix_that_was_deleted_at_the_source_names_that_of_the_copies() -> None:
    other = replace(OF_PREFIX, name="other")
    assert drift({MAY_READ}, {MAY_READ, OF_PREFIX, other}).surplus == (OF_PREFIX,)


def test_drift_of_a_prefix_whose_copies_have_acls_of_their_own_is_empty() -> None:
    wanted = {MAY_READ, replace(MAY_READ, name="orders.eu")}
    assert drift(wanted, {*wanted, OF_PREFIX}).surplus == ()
    assert drift({OF_PREFIX}, {OF_PREFIX, MAY_READ}).surplus == ()


def test_drift_names_a_surplus_write_only_if_writes_are_kept() -> None:
    wanted, present = {MAY_READ}, {MAY_READ, MAY_WRITE}
    assert drift(wanted, present).surplus == ()
    assert drift(wanted, present, KeptAcls.ALL).surplus == (MAY_WRITE,)


def test_drift_is_empty_if_all_operations_are_allowed_already() -> None:
    assert drift({MAY_READ, MAY_DESCRIBE}, {MAY_ALL}).missing == ()
