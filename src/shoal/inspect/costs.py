"""
The cost of a copy of topics by each kind of mirror: arithmetic from measured costs.

A mirror of whole batches works by requests, batches and stored bytes, a mirror that decodes by records and
batches. The constants below are fitted to the tables of ``bench/results.md``, and a test compares the model
with these tables. All runs were on 2 cores of an AMD EPYC with Kafka 4.1.0, and with records of 1,000 bytes.

- **Mover of shoal, native.** "Growth over partitions" has 6.6 µs a batch with 1 partition in a request, and
  2.5 with 4. "Several batches in a request" has 1.2 µs with 8 partitions, and 0.3 with many batches. The
  cost of bytes is that of "Movers, b1024_lz4": 0.24 CPU-seconds for 0.46 stored GB.
- **Destination's broker.** "Small batches, 2026-11-22" has 341.5 CPU-seconds for a GB of 270 B with one
  partition. "Several batches in a request" has 47.0 and 6.9 with 8. The rest is that of "Movers, b1_lz4" and
  "b1024_lz4". The broker decompresses to check records, so gzip costs it more ("Movers, b256_gzip").
- **MirrorMaker 2, tuned.** The same four tables of movers have 22.18, 10.22 and 9.44 CPU-seconds for a
  million records in batches of 1, 16 and 1,024 (lz4). In batches of 256 (gzip) it is 31.20. No measurement
  separates the cost of a record from that of its bytes. So if records have another size, the cost has two
  bounds: by the number of records, and by their bytes. Snappy and zstd were not measured, and count as lz4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .topic_report import TopicReport

__all__ = ["SOURCES", "MirrorCost", "cost_of_copy"]

SOURCES = "bench/results.md: movers, growth over partitions, several batches in a request (2026-11-23)"

#: CPU-seconds of the mover: for each request with one batch of each partition, each batch, each stored GB.
_MOVER_REQUEST_S = 7.0e-6
_MOVER_BATCH_S = 0.3e-6
_MOVER_GB_S = 0.52

#: CPU-seconds of the destination's broker: likewise, and for each uncompressed GB by codec.
_BROKER_REQUEST_S = 92e-6
_BROKER_BATCH_S = 1.6e-6
_BROKER_GB_S = 1.0
_BROKER_GZIP_GB_S = 3.4

#: CPU-seconds of MirrorMaker 2: for each source batch, and for each record of 1,000 bytes by codec.
_DEEP_BATCH_S = 12.7e-6
_DEEP_RECORD_S = 9.43e-6
_DEEP_GZIP_RECORD_S = 31.2e-6
#: The destination's broker for the batches that MirrorMaker 2 makes, for each uncompressed GB.
_DEEP_BROKER_GB_S = 1.9
_DEEP_BROKER_GZIP_GB_S = 4.05

_MEASURED_RECORD_BYTES = 1_000

#: The most partitions that shared a request in a measurement.
_MOST_TOGETHER = 8


@dataclass(frozen=True, slots=True)
class MirrorCost:
    """
    The cost of one copy of all batches by one kind of mirror.

    Attributes:
        mirror: The kind of mirror.
        mover_s: CPU-seconds of the mirror: the least and the most.
        broker_s: CPU-seconds of the destination's brokers: the least and the most.
        requests: The number of Produce requests, if each has as many partitions as in a measurement; None
            for MirrorMaker 2, whose producer makes its own batches.
        opened: The number of batches that the mirror decompresses.

    """

    mirror: str
    mover_s: tuple[float, float]
    broker_s: tuple[float, float]
    requests: int | None
    opened: int

    def to_json_object(self) -> dict[str, Any]:
        """Return the cost for JSON."""
        return {
            "mirror": self.mirror,
            "mover_cpu_s": [round(each, 3) for each in self.mover_s],
            "destination_broker_cpu_s": [round(each, 3) for each in self.broker_s],
            "requests": self.requests,
            "batches_opened": self.opened,
            "source": SOURCES,
        }


@dataclass(frozen=True, slots=True)
class _Load:
    """All batches of one topic, scaled up from what was read."""

    batches: float
    records: float
    stored_gb: float
    uncompressed_gb: float
    gzip_share: float
    opened: float
    together: int


def cost_of_copy(topics: Iterable[TopicReport]) -> tuple[MirrorCost, ...]:
    """Return the costs of a copy of all topics: MirrorMaker 2, shoal, and shoal with many in a request."""
    loads = [_load(each) for each in topics if each.facts.batches]
    one, many = [load.batches / load.together for load in loads], [0.0 for _ in loads]
    return (
        _by_records(loads),
        _by_batches("shoal, one batch a request", loads, one),
        _by_batches("shoal, several batches a request", loads, many),
    )


def _load(topic: TopicReport) -> _Load:
    facts = topic.facts
    stored_gb = facts.size * topic.scale / 1e9
    return _Load(
        batches=facts.batches * topic.scale,
        records=facts.records * topic.scale,
        stored_gb=stored_gb,
        # Without a measured ratio, the stored bytes are the least that they can be.
        uncompressed_gb=stored_gb * (topic.ratio or 1.0),
        gzip_share=facts.codec_sizes["gzip"] / facts.size,
        opened=topic.opened_by_shoal * topic.scale,
        together=max(1, min(topic.busy_partitions, _MOST_TOGETHER)),
    )


def _by_records(loads: Iterable[_Load]) -> MirrorCost:
    least = most = broker = batches = 0.0
    for load in loads:
        each_s = _mixed(load, _DEEP_RECORD_S, _DEEP_GZIP_RECORD_S)
        bounds = (load.records * each_s, load.uncompressed_gb * 1e9 / _MEASURED_RECORD_BYTES * each_s)
        least += min(bounds) + load.batches * _DEEP_BATCH_S
        most += max(bounds) + load.batches * _DEEP_BATCH_S
        broker += load.uncompressed_gb * _mixed(load, _DEEP_BROKER_GB_S, _DEEP_BROKER_GZIP_GB_S)
        batches += load.batches
    return MirrorCost("MirrorMaker 2", (least, most), (broker, broker), None, round(batches))


def _by_batches(name: str, loads: Iterable[_Load], requests: Iterable[float]) -> MirrorCost:
    mover = broker = sent = opened = 0.0
    for load, count in zip(loads, requests, strict=True):
        # A request with many batches has up to 1 MiB of a partition: its own cost vanishes beside theirs.
        mover += count * _MOVER_REQUEST_S + load.batches * _MOVER_BATCH_S + load.stored_gb * _MOVER_GB_S
        broker += count * _BROKER_REQUEST_S + load.batches * _BROKER_BATCH_S
        broker += load.uncompressed_gb * _mixed(load, _BROKER_GB_S, _BROKER_GZIP_GB_S)
        sent += count or load.stored_gb * 1e9 / (1024 * 1024 * load.together) + 1
        opened += load.opened
    return MirrorCost(name, (mover, mover), (broker, broker), round(sent), round(opened))


def _mixed(load: _Load, other: float, gzip: float) -> float:
    return other + (gzip - other) * load.gzip_share
