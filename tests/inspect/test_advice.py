"""Each finding, from counts that show its cause and from counts that do not."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from shoal.inspect.advice import Finding, advise
from shoal.inspect.facts import Facts, OpenTransaction, ProducerFacts, RatioSample
from shoal.topic_partition import TopicPartition

NOW_MS = 1_772_366_400_000


def report(
    batches: int = 1000,
    records_a_batch: int = 100,
    bytes_a_batch: int = 20_000,
    codec: str = "lz4",
    producers: int = 1,
    **fields: Any,
) -> Facts:
    """Return a topic without findings, unless an argument makes one."""
    records, size = batches * records_a_batch, batches * bytes_a_batch
    facts = Facts("orders", NOW_MS, batches, records, size, idempotent=batches)
    facts.codecs, facts.codec_sizes = Counter({codec: batches}), Counter({codec: facts.size})
    facts.magics = Counter({2: batches})
    facts.producers = {each: ProducerFacts(batches // producers) for each in range(producers)}
    for name, value in fields.items():
        setattr(facts, name, value)
    return facts


def findings(topic: Facts) -> list[Finding]:
    return list(advise([topic]))


def only(topic: Facts) -> Finding:
    (finding,) = findings(topic)
    return finding


def numbers(text: str) -> list[str]:
    return re.findall(r"\d[\d,.]*\d|\d", text)


def test_records_that_come_alone_get_a_linger() -> None:
    finding = only(report(records_a_batch=1, bytes_a_batch=200))
    assert (finding.kind, numbers(finding.text)) == ("small-batches", ["200", "1.0"])
    assert "alone" in finding.text
    assert all(each in finding.remedy for each in ("linger.ms=100", "--rebatch"))


def test_small_batches_of_several_records_do_not_come_alone() -> None:
    finding = only(report(bytes_a_batch=900))
    assert (finding.kind, numbers(finding.text)) == ("small-batches", ["900", "100.0"])
    assert "alone" not in finding.text


def test_full_batches_of_the_default_size_need_a_larger_batch_size() -> None:
    topic = report(bytes_a_batch=3000)
    topic.measure("lz4", RatioSample(1, 1000, 5400))
    finding = only(topic)
    assert finding.kind == "full-batches"
    assert numbers(finding.text) == ["3,000", "100.0", "16,200", "16,384"]
    assert "batch.size=65536" in finding.remedy


def test_large_batches_that_a_codec_shrinks_need_a_larger_batch_size_too() -> None:
    topic = report(bytes_a_batch=2000)
    topic.measure("lz4", RatioSample(1, 1000, 21_000))
    finding = only(topic)
    assert finding.kind == "full-batches"
    assert numbers(finding.text) == ["2,000", "100.0", "42,000"]
    assert "batch.size=262144" in finding.remedy


def transaction(last_ms: int, *, is_hanging: bool) -> OpenTransaction:
    return OpenTransaction(TopicPartition("orders", 3), 9, 500, last_ms, is_hanging, 77)


def test_hanging_transaction_has_the_command_that_ends_it() -> None:
    finding = only(report(open_transactions=[transaction(NOW_MS - 3 * 3_600_000, is_hanging=True)]))
    assert finding.kind == "hanging-transaction"
    assert numbers(finding.text) == ["9", "3", "500", "77"]
    assert finding.remedy.endswith("abort --topic orders --partition 3 --start-offset 500")


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        (report(producers=500, batches=1000), "short-lived-producers"),
        (report(codec="none"), "not-compressed"),
        (report(codecs=Counter(lz4=600, zstd=400)), "several-codecs"),
        (report(future_batches=1, most_ahead_ms=7_200_000), "future-timestamps"),
        (report(magics=Counter({1: 1000})), "old-format"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_cause_has_its_finding(topic: Facts, kind: str) -> None:
    assert only(topic).kind == kind
