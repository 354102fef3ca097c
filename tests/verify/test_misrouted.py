"""Records that were sent to the wrong topic: extra in one copy, and missing in another."""

from __future__ import annotations

import re

import pytest

from shoal.cli import main
from shoal.protocol.apis import ApiKey
from shoal.verify import DifferenceKind, OffsetRange, Outcome, VerifyReport, verify
from shoal.verify.findings import Elsewhere, Side
from tests.verify.test_page import as_json, problems
from tests.world.batches import Content
from tests.world.clusters import TwoBrokers
from tests.world.history import NOW_MS
from tests.world.verifying import cut, lay_out


def items(topic: str, count: int = 60) -> list[Content]:
    return [
        Content(NOW_MS + number, b"key %d" % number, f"{topic} {number}".encode()) for number in range(count)
    ]


def load(brokers: TwoBrokers, **copies: list[Content]) -> None:
    """Give each topic 60 records in batches of ten, and its copy these records."""
    for topic, copied in copies.items():
        (history,) = brokers.topic(topic)
        for batch in cut(items(topic), *[10] * 5):
            batch[:8] = history.next_offset.to_bytes(8, "big")
            history.store(batch)
        lay_out(brokers, cut(copied, *[10] * (len(copied) // 10)), topic)


def compared(brokers: TwoBrokers, *topics: str) -> VerifyReport:
    settings = brokers.settings
    return verify(settings.source, settings.destination, {each: each for each in topics}, patience_s=5.0)


def test_last_records_in_another_copy_are_misrouted_though_their_own_copy_seems_to_lag(
    brokers: TwoBrokers,
) -> None:
    orders, invoices = items("orders"), items("invoices")
    load(brokers, orders=orders[:50], invoices=[*invoices, *orders[50:]])
    report = compared(brokers, "orders", "invoices")
    (extra,) = report.partitions[0].differences
    assert extra.misrouted == Elsewhere(Side.SOURCE, "orders-0", OffsetRange(50, 60), 10)
    assert report.partitions[1].not_mirrored == (50, 60)


def test_records_that_take_the_place_of_others_are_misrouted(brokers: TwoBrokers) -> None:
    """Two batches of two producers have changed their topics."""
    orders, invoices = items("orders"), items("invoices")
    load(
        brokers,
        orders=orders[:20] + invoices[20:30] + orders[30:],
        invoices=invoices[:20] + orders[20:30] + invoices[30:],
    )
    report = compared(brokers, "orders", "invoices")
    for each, other in zip(report.partitions, ("orders-0", "invoices-0"), strict=True):
        found = [difference.misrouted for difference in each.differences if difference.misrouted]
        assert {one.partition for one in found} == {other}
        assert max(one.records for one in found) == 10
    assert problems(as_json(report)) == []


def test_foreign_and_missing_records_are_not_misrouted(brokers: TwoBrokers) -> None:
    orders, invoices = items("orders"), items("invoices")
    foreign = [Content(NOW_MS, b"foreign", b"%d" % number) for number in range(10)]
    load(brokers, orders=orders[:20] + orders[30:], invoices=invoices[:40] + foreign + invoices[40:])
    report = compared(brokers, "orders", "invoices")
    differences = [each for partition in report.partitions for each in partition.differences]
    assert [each.kind for each in differences] == [DifferenceKind.EXTRA, DifferenceKind.MISSING]
    assert [each.misrouted for each in differences] == [None, None]


def test_verb_names_the_other_topic(brokers: TwoBrokers, capsys: pytest.CaptureFixture[str]) -> None:
    orders, invoices = items("orders"), items("invoices")
    load(brokers, orders=orders[:20] + orders[21:], invoices=[*invoices[:40], orders[20], *invoices[40:]])
    command = ["verify", *brokers.between]
    assert main([*command, "--topics", "orders,invoices"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"invoices-0.*40.*1.*orders-0.*20", out)
    assert re.search(r"orders-0.*20.*\b1 .*invoices-0.*40", out)


def test_search_in_another_source_ends_with_its_log(brokers: TwoBrokers) -> None:
    orders, invoices = items("orders"), items("invoices")
    foreign = [Content(orders[-1].timestamp, b"foreign", b"%d" % number) for number in range(10)]
    load(brokers, orders=orders, invoices=[*invoices, *foreign])
    asked = brokers.source.faults.add(ApiKey.FETCH, times=None)
    report = compared(brokers, "orders", "invoices")
    assert [each.outcome for each in report.partitions] == [Outcome.DIFFERENT, Outcome.EQUAL]
    assert asked.hits <= 8
