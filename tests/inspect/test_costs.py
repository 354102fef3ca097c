"""The model of costs, against the measurements that it was fitted to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shoal.inspect.costs import MirrorCost, cost_of_copy
from shoal.inspect.facts import Facts
from shoal.inspect.topic_report import TopicReport

RESULTS = (Path(__file__).parents[2] / "bench" / "results.md").read_text(encoding="utf-8")

#: A million records of 1,000 bytes: an uncompressed GB.
RECORDS = 1_000_000


def a_gigabyte(records_a_batch: int, wire: float, codec: str = "lz4", partitions: int = 4) -> TopicReport:
    """Return a topic with an uncompressed GB in batches of one shape."""
    facts = Facts(0, batches=RECORDS // records_a_batch, records=RECORDS, size=int(wire * 1e9))
    facts.codecs[codec], facts.codec_sizes[codec] = facts.batches, facts.size
    facts.measure(codec, 1000, int(1000 / wire))
    return TopicReport("topic", partitions, partitions, RECORDS, RECORDS, 0, facts)


def measured(section: str, mover: str) -> tuple[float, float]:
    """Return the CPU-seconds per uncompressed GB of a mover, and of the destination's broker."""
    _, _, newest = RESULTS.partition("\n## 2026-11-23\n")
    _, _, table = newest.partition(f"\n### Movers, {section}\n")
    row = next(line for line in table.splitlines() if line.startswith(f"| {mover} |"))
    cells = [cell.strip(" *") for cell in row.split(" | ")]
    # mover, MB/s, CPU-s/GB, CPU-s/wire GB, JVM, busiest other process, source broker, destination broker
    first, last = (re.match(r"[\d.]+", cells[at]) for at in (2, 7))
    assert first
    assert last
    return float(first[0]), float(last[0])


SHAPES = {
    "b1_lz4": a_gigabyte(1, 1.0),
    "b16_lz4": a_gigabyte(16, 0.53),
    "b256_gzip": a_gigabyte(256, 0.32, "gzip"),
    "b1024_lz4": a_gigabyte(1024, 0.46),
}


def costs(topic: TopicReport) -> dict[str, MirrorCost]:
    return {each.mirror: each for each in cost_of_copy([topic])}


@pytest.mark.parametrize("shape", SHAPES)
def test_cost_of_mirror_maker_2_is_that_of_the_measurement(shape: str) -> None:
    mover, broker = measured(shape, "MirrorMaker 2, tuned")
    found = costs(SHAPES[shape])["MirrorMaker 2"]
    assert found.mover_s == pytest.approx((mover, mover), rel=0.05)
    assert found.broker_s[0] == pytest.approx(broker, rel=0.25)


@pytest.mark.parametrize("shape", SHAPES)
def test_cost_of_shoal_is_that_of_the_measurement(shape: str) -> None:
    mover, broker = measured(shape, "shoal, native")
    found = costs(SHAPES[shape])["shoal, one batch a request"]
    assert found.mover_s[0] == pytest.approx(mover, rel=0.35)
    assert found.broker_s[0] == pytest.approx(broker, rel=0.3)


@pytest.mark.parametrize(
    ("mirror", "row"),
    [
        ("shoal, one batch a request", "one in a request"),
        ("shoal, several batches a request", "many in a request"),
    ],
)
def test_cost_of_several_batches_in_a_request_is_that_of_the_measurement(mirror: str, row: str) -> None:
    _, _, table = RESULTS.partition("\n### Several batches in a request\n")
    line = next(each for each in table.splitlines() if each.startswith(f"| {row} |"))
    _, broker, mover = (float(number) for number in re.findall(r"\| ([\d.]+) \(", line))
    # A stored GB in batches of 270 bytes, and as many uncompressed bytes.
    facts = Facts(0, batches=3_700_000, records=3_700_000, size=10**9)
    facts.codec_sizes["none"] = facts.size
    found = costs(TopicReport("topic", 8, 8, 1, 1, 0, facts))[mirror]
    assert found.mover_s[0] == pytest.approx(mover, rel=0.1)
    assert found.broker_s[0] == pytest.approx(broker, rel=0.1)


def test_small_records_give_mirror_maker_2_two_bounds() -> None:
    facts = Facts(0, batches=1000, records=1_000_000, size=10**8)
    facts.codec_sizes["none"] = facts.size
    least, most = costs(TopicReport("topic", 1, 1, 1, 1, 0, facts))["MirrorMaker 2"].mover_s
    # 100 bytes a record: by bytes a tenth of what it is by records.
    assert (least, most) == pytest.approx((0.956, 9.443), rel=0.01)


def test_cost_of_a_sample_is_scaled_to_all_of_the_topic() -> None:
    whole = a_gigabyte(16, 0.53)
    part = TopicReport("topic", 4, 4, RECORDS * 10, RECORDS, 0, whole.facts)
    name = "shoal, one batch a request"
    assert costs(part)[name].mover_s[0] == pytest.approx(10 * costs(whole)[name].mover_s[0])
    assert costs(part)[name].requests == pytest.approx(10 * (costs(whole)[name].requests or 0), abs=10)
