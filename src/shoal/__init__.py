"""
Mirror Kafka topics by whole RecordBatches, on Spark.

``shoal.mirror(...)`` runs a mirror; ``shoal.ShoalDataSource`` is
``format("shoal")`` for ``spark.dataSource.register``. Both import PySpark, so
they are looked up when they are used: a task that only copies does not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .spark.api import mirror
    from .spark.datasource import ShoalDataSource

__all__ = ["ShoalDataSource", "mirror"]

_WHERE = {"mirror": "shoal.spark.api", "ShoalDataSource": "shoal.spark.datasource"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)
