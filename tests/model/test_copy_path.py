"""The rules of docs/architecture.md are enough together, and each of them is needed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tests.model.clusters import Events, State, Stop
from tests.model.copy_path import check
from tests.model.rules import Bounds, Protocol, Rule
from tests.model.search import Found

ALL = frozenset(Rule)


@dataclass(frozen=True)
class Setting:
    """Events, and the endings that they may lead to.

    Attributes:
        bounds: The bounds of the search.
        stops: The stops that are documented for these events.
        is_large: Whether the search takes up to 5 s of CPU; all others take 1 s.
    """

    bounds: Bounds
    stops: frozenset[Stop] = frozenset()
    is_large: bool = False

    @property
    def endings(self) -> set[str]:
        return {"done", *(stop.value for stop in self.stops)}


ORDINARY = Bounds("r-rr", Events(crashes=1, disconnects=1, cleanings=1, unknown_commits=1), queue=1)
LATE = Bounds("r-r-r", Events(crashes=1, disconnects=1), late=True)
REFUSED = Bounds("r-rr", Events(crashes=1, refusals=1))
FORGETFUL = Bounds("r-r", Events(crashes=1, disconnects=1, refusals=1, forgettings=1), late=True)
COMPARING = Bounds(
    "r-r", Events(crashes=1, disconnects=1, refusals=1, forgettings=1), late=True, compares_with_end=True
)
COPY_ELECTION = Bounds("r-r", Events(crashes=1, disconnects=1, copy_elections=1), late=True)
UNCLEAN_COPY = Bounds("r-rr", Events(crashes=1, disconnects=1, unclean_copy_elections=1))
SOURCE_ELECTIONS = Bounds(
    "r", Events(crashes=1, source_appends=2, source_elections=1, unclean_source_elections=1)
)
WITHOUT_EPOCHS = Bounds(
    "r", Events(crashes=1, source_appends=2, unclean_source_elections=1), without_epochs=True
)
LATE_WITHOUT_EPOCHS = Bounds("r-r", Events(disconnects=1, source_elections=1), late=True, without_epochs=True)
GAP_AND_ELECTION = Bounds("r-", Events(crashes=1, source_appends=2, unclean_source_elections=1))
SOURCE_RETENTION = Bounds("r-rr", Events(crashes=1, source_deletions=2))
FOREIGN = Bounds("r-r", Events(crashes=1, disconnects=1, foreign=1), late=True)
COPY_RETENTION = Bounds("r-rr", Events(crashes=1, disconnects=1, copy_deletions=2))
TWO_ATTEMPTS = Bounds("rr", Events(takeovers=1, cleanings=1), queue=1)
REBALANCE = Bounds("r-rr", Events(rebalances=1, cleanings=1, unknown_commits=1))
EMPTIED = Bounds("r-rr", Events(crashes=1, disconnects=1), start=1, emptied=2)


def with_events(bounds: Bounds, **events: int) -> Bounds:
    return replace(bounds, events=bounds.events._replace(**events))


ENOUGH = {
    "ordinary faults and compaction": Setting(ORDINARY, is_large=True),
    "late requests": Setting(LATE, is_large=True),
    "refused requests": Setting(REFUSED),
    "a broker that forgets": Setting(FORGETFUL),
    "a broker that compares with the log's end": Setting(COMPARING, is_large=True),
    "election at the copy": Setting(COPY_ELECTION, is_large=True),
    "unclean election at the copy": Setting(UNCLEAN_COPY, frozenset({Stop.DESTINATION_LOSS}), is_large=True),
    "elections at the source": Setting(SOURCE_ELECTIONS, frozenset({Stop.SOURCE_RESET}), is_large=True),
    "elections at a source without epochs": Setting(
        WITHOUT_EPOCHS, frozenset({Stop.SOURCE_RESET}), is_large=True
    ),
    "late requests behind an election at a source without epochs": Setting(
        LATE_WITHOUT_EPOCHS, is_large=True
    ),
    "unclean election behind a gap": Setting(GAP_AND_ELECTION, frozenset({Stop.SOURCE_RESET}), is_large=True),
    "retention at the source": Setting(SOURCE_RETENTION, frozenset({Stop.SOURCE_RETENTION})),
    "foreign records": Setting(FOREIGN, frozenset({Stop.FOREIGN, Stop.NOT_EMPTY})),
    "retention at the copy": Setting(COPY_RETENTION),
    "retention at a copy that forgets": Setting(
        with_events(COPY_RETENTION, forgettings=1), frozenset({Stop.UNKNOWN_WRITER}), is_large=True
    ),
    "retention and foreign records": Setting(
        with_events(FOREIGN, disconnects=0, copy_deletions=1),
        frozenset({Stop.FOREIGN, Stop.NOT_EMPTY, Stop.UNKNOWN_WRITER}),
    ),
    "two living attempts": Setting(TWO_ATTEMPTS),
    "another member's rebalance": Setting(REBALANCE, is_large=True),
    "a copy that retention emptied": Setting(EMPTIED),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long) if setting.is_large else name
        for name, setting in ENOUGH.items()
    ],
)
def test_mirror_by_all_rules_is_exact_and_each_run_ends(name: str) -> None:
    setting = ENOUGH[name]
    found = check(Protocol(ALL, setting.bounds))
    assert_exact(found)
    assert set(found.endings) == setting.endings


def assert_exact(found: Found[State]) -> None:
    assert found.violation is None, "\n".join((found.violation, *found.trace))
    assert found.trapped is None, "\n".join(("no ending can be reached", *found.trapped))


LARGER = {
    "ordinary faults and compaction": (
        Bounds("rrrr", Events(crashes=2, disconnects=1, cleanings=1, unknown_commits=1)),
        Bounds("rr-r", Events(crashes=2, cleanings=2, unknown_commits=1)),
    ),
    "late requests": (
        with_events(replace(LATE, source="r-r-rr"), crashes=2),
        with_events(LATE, disconnects=2, unknown_commits=1),
    ),
    "a broker that forgets": (with_events(replace(FORGETFUL, source="r-rr"), forgettings=2),),
    "a broker that compares with the log's end": (
        with_events(replace(COMPARING, source="r-rr"), forgettings=2),
    ),
    "election at the copy": (with_events(replace(COPY_ELECTION, source="r-rr"), copy_elections=2),),
    "unclean election at the copy": (replace(with_events(UNCLEAN_COPY, copy_elections=1), late=True),),
    "elections at the source": (
        with_events(SOURCE_ELECTIONS, source_appends=3),
        replace(with_events(SOURCE_ELECTIONS, disconnects=1, unclean_source_elections=0), late=True),
    ),
    "late requests behind an election at a source without epochs": (
        replace(with_events(LATE_WITHOUT_EPOCHS, crashes=1), source="r-rr"),
    ),
    "foreign records": (replace(FOREIGN, source="r-rr"),),
    "retention at a copy that forgets": (
        with_events(replace(COPY_RETENTION, late=True), forgettings=1, copy_deletions=3),
    ),
    "two living attempts": (
        Bounds("rrr", Events(takeovers=1, cleanings=1, crashes=1)),
        Bounds("r-rr", Events(takeovers=1, cleanings=1, disconnects=1)),
        Bounds("r-r", Events(takeovers=1, crashes=1, disconnects=1), late=True),
    ),
    "another member's rebalance": (
        with_events(REBALANCE, rebalances=2, disconnects=1),
        Bounds("r-r", Events(crashes=1, disconnects=1, rebalances=1, unknown_commits=1), late=True),
    ),
}


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "bounds"), [(name, bounds) for name, several in LARGER.items() for bounds in several]
)
def test_mirror_by_all_rules_is_exact_under_many_events(name: str, bounds: Bounds) -> None:
    found = check(Protocol(ALL, bounds))
    print(f"\n{name}, {bounds.source}: {found.states} states")
    assert_exact(found)
    assert set(found.endings) <= ENOUGH[name].endings


LOST, DOUBLED = "lost", "doubled"
SHORT = replace(LATE, source="r-r")
CLEANED = Bounds("rr", Events(crashes=1, disconnects=1, cleanings=1), queue=1)

#: For each rule: the rules that are missing without it, the bounds of the search, and what breaks.
NEEDED = {
    "PLAN": ({Rule.PLAN}, LATE, DOUBLED),
    "EXACT": ({Rule.EXACT, Rule.LAST}, SHORT, DOUBLED),
    "KEEP": ({Rule.KEEP}, SHORT, DOUBLED),
    "LAST": ({Rule.LAST}, GAP_AND_ELECTION, "stopped without a cause"),
    "QUIET": ({Rule.QUIET}, replace(CLEANED, source="rrr"), DOUBLED),
    "DOUBT": ({Rule.DOUBT}, with_events(CLEANED, unknown_commits=1), DOUBLED),
    "FENCE": ({Rule.FENCE}, Bounds("rr", Events(crashes=2, cleanings=1), queue=1), DOUBLED),
    "BREAK": ({Rule.BREAK}, SOURCE_ELECTIONS, LOST),
    "EPOCH": ({Rule.EPOCH}, SOURCE_ELECTIONS, LOST),
    "LEADER": ({Rule.LEADER}, WITHOUT_EPOCHS, LOST),
    "LEASE": ({Rule.LEASE}, TWO_ATTEMPTS, LOST),
    "TAIL": ({Rule.TAIL}, FOREIGN, "foreign records unnoticed"),
    "WATERMARK": ({Rule.WATERMARK}, COPY_ELECTION, LOST),
    "FIRST_ALONE": ({Rule.FIRST_ALONE}, REFUSED, LOST),
    "ONE_IN_FLIGHT": ({Rule.ONE_IN_FLIGHT}, Bounds("rrr", Events(refusals=1, forgettings=1)), LOST),
    "IDENTITY": ({Rule.IDENTITY}, LATE, DOUBLED),
}


@pytest.mark.parametrize("name", NEEDED)
def test_mirror_without_a_rule_breaks_the_promise(name: str) -> None:
    missing, bounds, violation = NEEDED[name]
    is_needless_stop = violation == "stopped without a cause"
    found = check(Protocol(ALL - missing, bounds), only_records=not is_needless_stop)
    print(f"\nwithout {name}: {found.violation} after {found.states} states", *found.trace, sep="\n  ")
    assert found.violation == violation


def test_each_rule_has_a_counter_example() -> None:
    assert set(NEEDED) == {rule.name for rule in Rule}


# Known failures: no client can prevent them


@pytest.mark.parametrize(
    "change",
    [{"cleanings": 1}, {"source_appends": 1, "unclean_source_elections": 1}],
    ids=["compaction", "election"],
)
def test_late_request_and_another_source_at_the_next_fetch_lose_a_record(change: dict[str, int]) -> None:
    """The broker takes another batch of the same size for the one that it has."""
    found = check(Protocol(ALL, with_events(replace(LATE, source="rr"), **change)))
    assert found.violation == LOST


def test_foreign_records_in_the_place_of_lost_ones_are_unnoticed() -> None:
    """Sequences and offsets agree again; only a comparison of contents finds it."""
    found = check(Protocol(ALL, with_events(UNCLEAN_COPY, foreign=1)))
    assert found.violation == "foreign records unnoticed"
