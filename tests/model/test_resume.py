"""Each of the rules of docs/resume-protocol.md is needed, and together they are enough.

The traces are shortest ones; ``tests/mirroring/task/resume/test_counter_examples.py``
applies them to the real code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tests.model.resume import Behind, Bounds, Broker, Resume, Rule, check

#: The rules for every destination, as long as the records are young.
YOUNG = frozenset(Rule) - {Rule.ONE_IN_FLIGHT, Rule.AWAIT_ZOMBIES}

#: The rules if the records are so old that the destination may forget their producer.
OLD = YOUNG | {Rule.ONE_IN_FLIGHT}


@dataclass(frozen=True)
class Setting:
    """A kind of destination, and the rules that are enough for it.

    Attributes:
        broker: The destination's behaviour.
        rules: The rules that the mirror has to keep; all others are optional.
        bounds: The bounds of the search.
        states: Number of states; in docs/resume-protocol.md as well.
    """

    broker: Broker
    rules: frozenset[Rule]
    bounds: Bounds
    states: int


ENOUGH = {
    "remembers": Setting(
        Broker.REMEMBERS,
        frozenset({Rule.SAME_IDENTITY, Rule.FIRST_POSITION_FIRST, Rule.FIRST_ALONE, Rule.AWAIT_WATERMARK}),
        Bounds(disconnects=0),
        30_392,
    ),
    "forgets": Setting(
        Broker.FORGETS,
        frozenset({Rule.ONE_IN_FLIGHT, Rule.NO_RESEND, Rule.AWAIT_WATERMARK, Rule.AWAIT_ZOMBIES}),
        Bounds(disconnects=0),
        54_164,
    ),
    "compares": Setting(
        Broker.COMPARES,
        frozenset({Rule.AWAIT_WATERMARK}),
        Bounds(records=2, processes=2, disconnects=0, expiries=1),
        32_186,
    ),
    "remembers, the mirror's own rules": Setting(Broker.REMEMBERS, YOUNG, Bounds(processes=2), 29_160),
    "forgets late, the mirror's own rules": Setting(
        Broker.FORGETS_LATE, OLD, Bounds(disconnects=0, expiries=1), 42_252
    ),
}


@pytest.mark.parametrize("name", ENOUGH)
def test_mirror_by_its_rules_is_exact_and_never_stops(name: str) -> None:
    setting = ENOUGH[name]
    found = check(Resume(setting.rules, setting.broker, setting.bounds))
    assert found.violation is None, "\n".join(found.trace)
    assert set(found.endings) == {"done"}
    assert found.states == setting.states


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("remembers", Bounds()),
        ("remembers", Bounds(disconnects=0, elections=2)),
        ("forgets", Bounds()),
        ("forgets", Bounds(disconnects=0, elections=2)),
        ("compares", Bounds(records=2, disconnects=0, expiries=1)),
        ("compares", Bounds(processes=2, disconnects=0, expiries=1)),
        ("remembers, the mirror's own rules", Bounds()),
        ("forgets late, the mirror's own rules", Bounds()),
    ],
)
def test_mirror_by_its_rules_is_exact_under_many_events(name: str, bounds: Bounds) -> None:
    setting = ENOUGH[name]
    found = check(Resume(setting.rules, setting.broker, bounds))
    print(f"\n{name}: {found.states} states")
    assert found.violation is None, "\n".join(found.trace)
    # Two elections between two requests can put another batch at the former log end.
    ends_early = {"the last batch is not the one that it should be"} if bounds.elections > 1 else set()
    assert set(found.endings) <= {"done"} | ends_early


@dataclass(frozen=True)
class CounterExample:
    """The violation if one rule is missing.

    Attributes:
        broker: The destination's behaviour.
        rules: The rules that the mirror still keeps.
        violation: The violation.
        trace: The transitions that lead to it.
    """

    broker: Broker
    rules: frozenset[Rule]
    violation: str
    trace: tuple[str, ...]


def without(name: str, rule: Rule, *others: Rule) -> frozenset[Rule]:
    """Return the rules of a setting without one rule, but with others that are not needed there."""
    assert rule in ENOUGH[name].rules
    return ENOUGH[name].rules - {rule} | set(others)


NEW_IDENTITY = (
    "the log end is asked for: 0",
    "begins at 0",
    "sends [0] (producer 1, sequence 0)",
    "process 1 crashes",
    "the log end is asked for: 0",
    "aligned at (0, 0)",
    "sends [0] (producer 2, sequence 0)",
    "[0] (producer 2, sequence 0) is appended at 0",
    "a request that was left behind arrives: [0] (producer 1, sequence 0) is appended at 1",
)
#: The same, without any record of its producer.
NO_FIRST_POSITION = tuple("begins at 0" if label == "aligned at (0, 0)" else label for label in NEW_IDENTITY)
TWO_AT_FIRST = (
    "the log end is asked for: 0",
    "begins at 0",
    "sends [0] (producer 1, sequence 0)",
    "sends [1] (producer 1, sequence 1)",
    "[0] (producer 1, sequence 0) is refused",
    "[1] (producer 1, sequence 1) is appended at 0",
)
TWO_IN_FLIGHT = (
    "the log end is asked for: 0",
    "begins at 0",
    "sends [0] (producer 1, sequence 0)",
    "[0] (producer 1, sequence 0) is appended at 0",
    "the follower has [0] (producer 1, sequence 0)",
    "[0] (producer 1, sequence 0) is acknowledged at 0",
    "sends [1] (producer 1, sequence 1)",
    "sends [2] (producer 1, sequence 2)",
    "[1] (producer 1, sequence 1) is refused",
    "the leader forgets its producers",
    "[2] (producer 1, sequence 2) is appended at 1",
)
AHEAD_OF_THE_WATERMARK = (
    "the log end is asked for: 0",
    "begins at 0",
    "sends [0] (producer 1, sequence 0)",
    "[0] (producer 1, sequence 0) is appended at 0",
    "the follower has [0] (producer 1, sequence 0)",
    "[0] (producer 1, sequence 0) is acknowledged at 0",
    "sends [1-2] (producer 1, sequence 1)",
    "the connection is lost",
    "a request that was left behind arrives: [1-2] (producer 1, sequence 1) is appended at 1",
    "the log end is asked for: 3",
    "aligned at (3, 3)",
    "the follower is elected, 1 batches are lost",
)
SENT_AGAIN = (
    "the log end is asked for: 0",
    "begins at 0",
    "sends [0] (producer 1, sequence 0)",
    "the connection is lost, and everything is sent again",
    "[0] (producer 1, sequence 0) is appended at 0",
    "the leader forgets its producers",
    "a request that was left behind arrives: [0] (producer 1, sequence 0) is appended at 1",
)
A_ZOMBIE = (
    "the log end is asked for: 0",
    "begins at 0",
    "sends [0] (producer 1, sequence 0)",
    "the connection is lost",
    "the log end is asked for: 0",
    "aligned at (0, 0)",
    "sends [0] (producer 1, sequence 0)",
    "[0] (producer 1, sequence 0) is appended at 0",
    "the leader forgets its producers",
    "a request that was left behind arrives: [0] (producer 1, sequence 0) is appended at 1",
)
IDENTITY = (Rule.SAME_IDENTITY, Rule.FIRST_POSITION_FIRST)

COUNTER_EXAMPLES = {
    "remembers, a new identity": CounterExample(
        Broker.REMEMBERS, without("remembers", Rule.SAME_IDENTITY), "doubled", NEW_IDENTITY
    ),
    "remembers, no first position": CounterExample(
        Broker.REMEMBERS, without("remembers", Rule.FIRST_POSITION_FIRST), "doubled", NO_FIRST_POSITION
    ),
    "remembers, the first not alone": CounterExample(
        Broker.REMEMBERS, without("remembers", Rule.FIRST_ALONE), "lost", TWO_AT_FIRST
    ),
    "remembers, ahead of the watermark": CounterExample(
        Broker.REMEMBERS,
        without("remembers", Rule.AWAIT_WATERMARK, Rule.NO_RESEND),
        "lost",
        AHEAD_OF_THE_WATERMARK,
    ),
    "forgets, two in flight": CounterExample(
        Broker.FORGETS,
        without("forgets", Rule.ONE_IN_FLIGHT, Rule.FIRST_ALONE, *IDENTITY),
        "lost",
        TWO_IN_FLIGHT,
    ),
    "forgets, sent again": CounterExample(
        Broker.FORGETS, without("forgets", Rule.NO_RESEND, *IDENTITY), "doubled", SENT_AGAIN
    ),
    "forgets, ahead of the watermark": CounterExample(
        Broker.FORGETS,
        without("forgets", Rule.AWAIT_WATERMARK, *IDENTITY),
        "lost",
        AHEAD_OF_THE_WATERMARK,
    ),
    "forgets, a zombie": CounterExample(
        Broker.FORGETS, without("forgets", Rule.AWAIT_ZOMBIES, *IDENTITY), "doubled", A_ZOMBIE
    ),
    "compares, ahead of the watermark": CounterExample(
        Broker.COMPARES,
        without("compares", Rule.AWAIT_WATERMARK, Rule.FIRST_ALONE, Rule.NO_RESEND, *IDENTITY),
        "lost",
        AHEAD_OF_THE_WATERMARK,
    ),
}


@pytest.mark.parametrize("name", COUNTER_EXAMPLES)
def test_mirror_without_one_of_its_rules_breaks_a_promise(name: str) -> None:
    expected = COUNTER_EXAMPLES[name]
    found = check(Resume(expected.rules, expected.broker))
    assert found.violation == expected.violation
    assert found.trace == expected.trace


@pytest.mark.parametrize("name", ["remembers", "forgets", "compares"])
def test_rules_of_a_setting_are_all_needed(name: str) -> None:
    """The result is the same for every choice of the optional rules."""
    setting = ENOUGH[name]
    for rule in setting.rules:
        found = check(Resume(setting.rules - {rule}, setting.broker))
        assert found.violation is not None, rule


@pytest.mark.parametrize("broker", [Broker.REMEMBERS, Broker.COMPARES])
def test_mirror_that_ignores_the_watermark_stops_for_an_unacknowledged_tail(
    broker: Broker,
) -> None:
    """Even if no step comes too early, and no record in the log is doubled or lost."""
    rules = YOUNG - {Rule.AWAIT_WATERMARK}
    found = check(Resume(rules, broker, Bounds(failures=0)))
    assert found.violation == "lost"
    assert "the destination lost its tail" in found.endings


def test_duplicate_of_a_zombie_is_detected_unless_it_comes_after_the_last_request() -> None:
    found = check(Resume(OLD, Broker.FORGETS, Bounds(disconnects=0)), only_undetected=True)
    assert "landed elsewhere" in found.endings
    assert "the last batch is not the one that it should be" in found.endings
    assert found.violation == "doubled"
    assert found.trace[-3:] == (
        "[1-2] (producer 1, sequence 1) is acknowledged at 1",
        "the leader forgets its producers",
        "a request that was left behind arrives: [0] (producer 1, sequence 0) is appended at 3",
    )


# After foreign records

FOREIGN = Bounds(records=2, processes=2, disconnects=0, foreign=1)


@pytest.mark.parametrize("broker", [Broker.REMEMBERS, Broker.FORGETS_LATE])
def test_contiguous_sequences_after_foreign_records_are_safe(broker: Broker) -> None:
    rules = YOUNG if broker is Broker.REMEMBERS else OLD
    found = check(Resume(rules, broker, replace(FOREIGN, expiries=1), Behind.MOVED_BASE))
    assert found.violation is None, "\n".join(found.trace)
    assert set(found.endings) == {"done"}


def test_new_epoch_after_foreign_records_allows_a_zombie_s_duplicate() -> None:
    found = check(Resume(YOUNG, Broker.REMEMBERS, FOREIGN, Behind.NEW_EPOCH))
    assert found.violation == "doubled"
    assert found.trace == (
        "the log end is asked for: 0",
        "begins at 0",
        "sends [0] (producer 1, sequence 0)",
        "process 1 crashes",
        "another program writes a record",
        "the log end is asked for: 1",
        "a request that was left behind arrives: [0] (producer 1, sequence 0) is appended at 1",
        "the follower has a foreign record",
        "aligned at (0, 1)",
        "sends [0] (producer 1 epoch 1, sequence 0)",
        "[0] (producer 1 epoch 1, sequence 0) is appended at 2",
    )


def test_new_epoch_without_possible_zombies_is_safe() -> None:
    found = check(Resume(YOUNG | {Rule.AWAIT_ZOMBIES}, Broker.REMEMBERS, FOREIGN, Behind.NEW_EPOCH))
    assert found.violation is None, "\n".join(found.trace)


# After retention at the destination

DELETING = replace(FOREIGN, deletions=2)


@pytest.mark.parametrize("broker", [Broker.REMEMBERS, Broker.FORGETS_LATE])
@pytest.mark.parametrize("foreign", [0, 1])
def test_deleted_records_are_counted_by_their_sequences(broker: Broker, foreign: int) -> None:
    rules = YOUNG if broker is Broker.REMEMBERS else OLD
    bounds = replace(DELETING, expiries=1, foreign=foreign)
    found = check(Resume(rules, broker, bounds, Behind.MOVED_BASE))
    assert found.violation is None, "\n".join(found.trace)
    # A leader that does not know the writer has forgotten it, or never had a record of it.
    has_unknown = broker is Broker.FORGETS_LATE or foreign > 0
    unknown = {"nothing shows which program wrote the deleted records"} if has_unknown else set()
    assert set(found.endings) == {"done"} | unknown


def test_deleted_records_that_count_as_another_program_s_are_doubled_or_waited_for() -> None:
    """A broker that takes a request for an older one answers with an offset before the log's first."""
    rules = YOUNG - {Rule.COUNT_DELETED}
    found = check(Resume(rules, Broker.REMEMBERS, DELETING, Behind.MOVED_BASE))
    assert found.violation is not None or "landed elsewhere" in found.endings
