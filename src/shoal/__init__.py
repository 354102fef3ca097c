"""
Mirror Kafka topics by whole RecordBatches, on Spark.

``shoal.mirror(shoal.MirrorOptions(...))`` runs a mirror, and gives each ``shoal.AcknowledgedRun`` of
offsets to ``on_run``; ``shoal.data_source(spark)`` and ``shoal.ShoalDataSource``
are ``format("shoal")`` for ``spark.dataSource.register``. These import PySpark, so
they are looked up when they are used: a task that only copies does not pay for it.

``shoal.translate_offsets(shoal.MirrorOptions(...))`` translates the offsets of consumer groups.

``shoal.RawConsumer`` and ``shoal.RawProducer`` are KIP-712's client API, without
Spark; with them come the types that they take and return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client.committed_offsets import Committed
    from .client.consumer import ConsumerRecord, RawConsumer, RawRecord
    from .client.membership import RebalanceListener
    from .client.producer import RawProducer, RecordMetadata
    from .mirroring.model.acknowledged import AcknowledgedRun
    from .mirroring.model.options import MirrorOptions
    from .mirroring.model.topics import TopicSelection
    from .mirroring.sync.one_round import translate_offsets
    from .spark.api import mirror
    from .spark.datasource import ShoalDataSource, data_source
    from .topic_partition import TopicPartition

__all__ = [
    "AcknowledgedRun",
    "Committed",
    "ConsumerRecord",
    "MirrorOptions",
    "RawConsumer",
    "RawProducer",
    "RawRecord",
    "RebalanceListener",
    "RecordMetadata",
    "ShoalDataSource",
    "TopicPartition",
    "TopicSelection",
    "data_source",
    "mirror",
    "translate_offsets",
]

_WHERE = {
    "AcknowledgedRun": "shoal.mirroring.model.acknowledged",
    "Committed": "shoal.client.committed_offsets",
    "ConsumerRecord": "shoal.client.consumer",
    "MirrorOptions": "shoal.mirroring.model.options",
    "RawConsumer": "shoal.client.consumer",
    "RawProducer": "shoal.client.producer",
    "RawRecord": "shoal.client.consumer",
    "RebalanceListener": "shoal.client.membership",
    "RecordMetadata": "shoal.client.producer",
    "ShoalDataSource": "shoal.spark.datasource",
    "TopicPartition": "shoal.topic_partition",
    "TopicSelection": "shoal.mirroring.model.topics",
    "data_source": "shoal.spark.datasource",
    "mirror": "shoal.spark.api",
    "translate_offsets": "shoal.mirroring.sync.one_round",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    """Return the public names, for completion: most of them are not looked up yet."""
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
