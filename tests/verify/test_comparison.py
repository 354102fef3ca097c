"""Verify a mirror between two brokers, after damage was done to it."""

from __future__ import annotations

import pytest

from shoal.verify import Outcome, Side
from tests.world.batches import Content, encode
from tests.world.clusters import TwoBrokers
from tests.world.history import NOW_MS, History
from tests.world.verifying import altered, partition, rewrite


def test_verify_of_a_mirror_by_other_rules_is_not_compared(brokers: TwoBrokers, history: History) -> None:
    history.plain(3)
    brokers.run()
    assert partition(brokers, rules={"rules"}).outcome is Outcome.EQUAL
    other = partition(brokers, rules={"others"})
    assert other.outcome is Outcome.NOT_COMPARED
    assert "other rules" in str(other.reason)


@pytest.mark.parametrize("side", list(Side))
def test_verify_begins_at_the_first_place_of_the_map_if_retention_deleted_the_origin(
    brokers: TwoBrokers, history: History, side: Side
) -> None:
    repeated = [Content(NOW_MS, b"key %d" % number, b"alive") for number in range(10)]
    for base in range(0, 100, 10):
        history.store(encode(repeated, base_offset=base))
    brokers.run()
    other = encode([repeated[0]._replace(value=b"another"), *repeated[1:]])
    rewrite(brokers, lambda found: [*found[:6], other, *found[7:]])
    broker = brokers.source if side is Side.SOURCE else brokers.destination
    broker.log("topic").delete_records(43)
    report = partition(brokers)
    assert (altered(report), report.records) == ([((60, 61), (60, 61))], 56)
    assert report.alignment is not None
    assert report.alignment.place == (43, 43)
