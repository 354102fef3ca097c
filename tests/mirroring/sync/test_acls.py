"""Which ACLs the destination gets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.client.acls import AclBinding, AclOperation, PatternType, Resource
from shoal.mirroring.sync.acls import lacking, mirror_principals, translate_acls

NAMES = {"orders": "orders", "orders.eu": "orders.eu", "payments": "payments"}
COPIES = {name: f"copy.{name}" for name in NAMES}
GROUPS = {"app", "app-2", "pay", "*"}

MAY_READ = AclBinding(
    Resource.TOPIC, PatternType.LITERAL, "orders", "User:alice", "*", AclOperation.READ, True
)
MAY_ALL = replace(MAY_READ, operation=AclOperation.ALL)
MAY_DESCRIBE = replace(MAY_READ, operation=AclOperation.DESCRIBE)
MAY_NOT = replace(MAY_READ, allows=False)
OF_PREFIX = replace(MAY_READ, pattern=PatternType.PREFIXED, name="orders")
OF_ALL = replace(MAY_READ, name="*")
OF_GROUP = replace(MAY_READ, resource=Resource.GROUP, name="app")


def translated(
    *bindings: AclBinding, names: dict[str, str] = COPIES, has_all: bool = False
) -> set[AclBinding]:
    return set(translate_acls(bindings, names, GROUPS, has_all=has_all))


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


@pytest.mark.parametrize("binding", [OF_PREFIX, replace(OF_PREFIX, allows=False)])
@pytest.mark.parametrize("names", [NAMES, COPIES])
def test_prefix_becomes_the_names_of_the_copies(names: dict[str, str], binding: AclBinding) -> None:
    literal = replace(binding, pattern=PatternType.LITERAL)
    assert translated(binding, names=names) == named(literal, names["orders"], names["orders.eu"])


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
    assert translated(binding, has_all=True) == named(binding, "copy.orders")


@pytest.mark.parametrize("has_all", [False, True])
def test_acl_of_a_group_keeps_its_name_and_lets_it_read(has_all: bool) -> None:
    may_delete = replace(OF_GROUP, operation=AclOperation.DELETE)
    assert translated(OF_GROUP, may_delete, has_all=has_all) == {OF_GROUP}


@pytest.mark.parametrize("allows", [True, False])
def test_acl_of_groups_by_pattern_becomes_the_names_of_selected_groups(allows: bool) -> None:
    by_prefix = replace(OF_GROUP, pattern=PatternType.PREFIXED, allows=allows)
    of_all = replace(OF_GROUP, name="*", allows=allows)
    of_group = replace(OF_GROUP, allows=allows)
    assert translated(by_prefix) == named(of_group, "app", "app-2")
    assert translated(of_all) == named(of_group, "app", "app-2", "pay")


def test_acl_of_a_group_that_is_not_selected_is_not_kept() -> None:
    assert translated(replace(OF_GROUP, name="shoal-1")) == set()


def test_empty_prefix_of_groups_never_becomes_the_name_of_all() -> None:
    by_prefix = replace(OF_GROUP, pattern=PatternType.PREFIXED, name="")
    assert translated(by_prefix) == named(OF_GROUP, "app", "app-2", "pay")


def test_lacking_acls_begin_with_denials() -> None:
    assert lacking({MAY_READ, MAY_NOT}, ()) == [MAY_NOT, MAY_READ]


def test_equal_acls_are_no_difference() -> None:
    there = {MAY_READ, OF_GROUP, replace(MAY_READ, name="other")}
    assert lacking({MAY_READ}, there) == []


WANTED = AclBinding(
    Resource.GROUP, PatternType.LITERAL, "billing", "User:app", "*", AclOperation.DESCRIBE, True
)
READ = replace(WANTED, operation=AclOperation.READ)
DENIED = replace(WANTED, allows=False)
CONFIGS = replace(WANTED, resource=Resource.TOPIC, operation=AclOperation.DESCRIBE_CONFIGS)


@pytest.mark.parametrize(
    ("wanted", "present", "is_lacking"),
    [
        (WANTED, READ, False),
        (WANTED, replace(READ, operation=AclOperation.ALL), False),
        (WANTED, replace(READ, operation=AclOperation.DELETE), False),
        (WANTED, replace(READ, pattern=PatternType.PREFIXED, name="bill"), False),
        (WANTED, replace(READ, name="*"), False),
        (WANTED, replace(READ, principal="User:*"), False),
        (CONFIGS, replace(CONFIGS, operation=AclOperation.ALTER_CONFIGS), False),
        (WANTED, replace(READ, principal="User:other"), True),
        (WANTED, replace(READ, host="10.0.0.1"), True),
        (WANTED, replace(READ, name="other"), True),
        (WANTED, replace(READ, allows=False), True),
        (WANTED, replace(READ, resource=Resource.TOPIC), True),
        (replace(WANTED, operation=AclOperation.READ), WANTED, True),
        (CONFIGS, replace(CONFIGS, operation=AclOperation.READ), True),
        (DENIED, replace(DENIED, operation=AclOperation.READ), True),
        (DENIED, replace(DENIED, operation=AclOperation.ALL), False),
    ],
)
def test_acl_is_lacking_unless_another_one_implies_it(
    wanted: AclBinding, present: AclBinding, is_lacking: bool
) -> None:
    assert lacking([wanted], [present]) == ([wanted] if is_lacking else [])


@pytest.mark.parametrize(("pattern", "name"), [(PatternType.PREFIXED, "shoal."), (PatternType.LITERAL, "*")])
def test_principal_of_a_pattern_is_the_mirror_if_it_may_describe_configurations(
    pattern: PatternType, name: str
) -> None:
    mirror = replace(READ, pattern=pattern, name=name, principal="User:mirror")
    consumer = replace(mirror, principal="User:consumer")
    everyone = replace(mirror, principal="User:*")
    found = {mirror, consumer, everyone, replace(CONFIGS, principal="User:mirror")}
    assert mirror_principals(found, "shoal.A.B") == {"User:mirror"}
    assert mirror_principals(found, "other") == ({"User:mirror"} if name == "*" else set())


def test_principal_that_holds_the_group_by_name_is_the_mirror() -> None:
    mirror = replace(READ, name="shoal.A.B", principal="User:mirror")
    assert mirror_principals([READ, mirror], "shoal.A.B") == {"User:mirror"}
