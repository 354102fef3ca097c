"""ACLs by their effect at the destination."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.client.acls import AclBinding, AclOperation, PatternType, Resource
from shoal.mirroring.cutover.effective_acls import lacking, mirror_principals

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
        (replace(WANTED, pattern=PatternType.PREFIXED), READ, True),
        (CONFIGS, replace(CONFIGS, operation=AclOperation.READ), True),
        (DENIED, replace(DENIED, operation=AclOperation.READ), True),
        (DENIED, replace(DENIED, operation=AclOperation.ALL), False),
    ],
)
def test_acl_is_lacking_unless_another_one_implies_it(
    wanted: AclBinding, present: AclBinding, is_lacking: bool
) -> None:
    assert lacking([wanted], [present], ()) == ([wanted] if is_lacking else [])


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


def test_principal_of_the_mirror_needs_no_acl_at_the_destination() -> None:
    own = mirror_principals([READ, replace(READ, name="shoal.A.B", principal="User:mirror")], "shoal.A.B")
    assert own == {"User:mirror"}
    assert lacking([replace(WANTED, principal="User:mirror")], [], own) == []
