"""The consumer at the destination counts lost, doubled and reordered records."""

from __future__ import annotations

import pytest

from rig.judge import Verdict
from tests.campaigns.soak.ledger import Fate, Ledger, read_value, write_value


def sent(*fates: Fate) -> Ledger:
    """Return a ledger with one partition, whose records have these fates."""
    ledger = Ledger()
    for fate in fates:
        ledger.close("t", 0, ledger.open("t", 0), fate)
    return ledger


def arrived(ledger: Ledger, *numbers: int) -> Verdict:
    for number in numbers:
        ledger.arrive("t", 0, number)
    return ledger.verdict()


THREE = (Fate.COMMITTED,) * 3


def test_records_once_and_in_order_are_exact() -> None:
    tally = arrived(sent(*THREE), 0, 1, 2)
    assert tally == Verdict(due=3, arrived=3)
    assert tally.is_exact


@pytest.mark.parametrize(
    ("numbers", "wrong"),
    [
        ((0, 2), {"missing": 1}),
        ((0, 1, 1, 2), {"twice": 1}),
        ((0, 1, 2, 0), {"twice": 1}),
        ((0, 2, 1), {"late": 1}),
        ((0, 1, 2, 3), {"foreign": 1}),
    ],
)
def test_wrong_arrivals_are_counted(numbers: tuple[int, ...], wrong: dict[str, int]) -> None:
    tally = arrived(sent(*THREE), *numbers)
    none = {"missing": 0, "twice": 0, "late": 0, "foreign": 0}
    assert {name: getattr(tally, name) for name in none} == none | wrong
    assert not tally.is_exact


def test_aborted_records_must_not_arrive() -> None:
    assert arrived(sent(Fate.COMMITTED, Fate.ABORTED, Fate.COMMITTED), 0, 2).is_exact
    assert arrived(sent(Fate.COMMITTED, Fate.ABORTED), 0, 1).foreign == 1


def test_records_of_unknown_fate_may_arrive() -> None:
    assert arrived(sent(Fate.UNKNOWN), 0).is_exact
    assert arrived(sent(Fate.UNKNOWN)).is_exact


def test_record_may_arrive_before_its_commit_is_acknowledged() -> None:
    ledger = Ledger()
    number = ledger.open("t", 0)
    ledger.arrive("t", 0, number)
    ledger.close("t", 0, number, Fate.COMMITTED)
    assert ledger.verdict().is_exact


def test_committed_record_is_missing_until_it_arrives() -> None:
    ledger = sent(Fate.COMMITTED, Fate.ABORTED, Fate.COMMITTED)
    ledger.arrive("t", 0, 0)
    assert ledger.missing() == {("t", 0): 2}
    assert ledger.oldest_missing_s() > 0
    ledger.arrive("t", 0, 2)
    assert ledger.missing() == {}
    assert ledger.oldest_missing_s() == 0


def test_lag_of_a_transaction_begins_with_its_commit() -> None:
    ledger = Ledger()
    number = ledger.open("t", 0)
    ledger.visible_from_now([("t", 0, number)])
    ledger.arrive("t", 0, number)
    (arrival,) = ledger.arrivals()
    assert 0 <= arrival.lag_ms < 1000
    assert ledger.first_arrival_ns("t", [0, 1]) == arrival.arrived_ns
    assert ledger.first_arrival_ns("t", [1]) is None


def test_value_has_topic_partition_and_number() -> None:
    assert read_value(write_value("a.b", 3, 17, b"//x")) == ("a.b", 3, 17)
    for other in (None, b"", b"a/b", b"a/x/1/"):
        with pytest.raises(ValueError, match=r"unpack|invalid literal"):
            read_value(other)
