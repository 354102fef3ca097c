"""The rules of assignment are enough together, and each of them is needed."""

from __future__ import annotations

import pytest

from tests.model.assignment import Assignment, Events, Rule, State, steps, violation_of
from tests.model.search import Found, search

ALL = frozenset(Rule)

DEATH = Events(joins=2, deaths=1)
BALANCE = Events(joins=2, moves=1)
SHARED = Events(joins=1, revocations=1)
EXPELLED = Events(joins=1, expulsions=1)
RESTARTED = Events(joins=2, restarts=1)

TWO_WRITERS = "two tasks may write the partition"
LATE_COMMIT = "a commit of a former task takes effect"
OTHERS = "a task may write a partition that the group gave to another process"
IDLE = "the partition is in no live document for longer than the patience and a lease"


def check(events: Events, rules: frozenset[Rule] = ALL) -> Found[State]:
    assignment = Assignment(rules, events)
    return search(State(), lambda state: steps(assignment, state), violation_of, lambda state: None)


#: Two of the searches take 5 s of CPU each, all others together as long.
@pytest.mark.parametrize(
    "events",
    [
        DEATH,
        pytest.param(BALANCE, marks=pytest.mark.long),
        SHARED,
        EXPELLED,
        pytest.param(RESTARTED, marks=pytest.mark.long),
    ],
)
def test_all_rules_keep_a_partition_in_one_live_document(events: Events) -> None:
    found = check(events)
    assert found.violation is None, found.trace
    assert found.states > 500


NEEDED = [
    (Rule.LEFT, BALANCE, TWO_WRITERS),
    (Rule.NUMBER, BALANCE, TWO_WRITERS),
    (Rule.READING, DEATH, TWO_WRITERS),
    (Rule.FENCE, DEATH, LATE_COMMIT),
    (Rule.FROZEN, DEATH, TWO_WRITERS),
    (Rule.QUIET, BALANCE, LATE_COMMIT),
    (Rule.GROUP, EXPELLED, OTHERS),
    (Rule.SESSION, RESTARTED, TWO_WRITERS),
    (Rule.RUN_OUT, DEATH, IDLE),
    (Rule.PATIENCE, BALANCE, IDLE),
]


@pytest.mark.parametrize(("rule", "events", "violation"), NEEDED)
def test_each_rule_is_needed(rule: Rule, events: Events, violation: str) -> None:
    assert check(events, ALL - {rule}).violation == violation


def test_each_rule_is_switched_off_by_some_test() -> None:
    assert {rule for rule, _, _ in NEEDED} == ALL
