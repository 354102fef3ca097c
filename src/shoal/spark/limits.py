"""
PySpark's limits of a micro-batch: its own classes since 4.2, and stand-ins for older versions.

PySpark 4.0 and 4.1 have no limits: they call ``latestOffset()`` without arguments. If the real classes are
missing, the classes here have their names and fields, so that the reader's signatures are the same. A reader
for all versions has ``latestOffset(self, start=None, limit=None)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

__all__ = ["HAS_LIMITS", "ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]

#: Whether PySpark passes the start and the limit of a micro-batch.
HAS_LIMITS = True

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ModuleNotFoundError:
        HAS_LIMITS = False

        class ReadLimit:
            """Stand-in for PySpark's base class of limits."""

        @dataclass
        class ReadAllAvailable(ReadLimit):
            """Stand-in for PySpark's limit that allows all available offsets."""

        @dataclass
        class ReadMaxRows(ReadLimit):
            """Stand-in for PySpark's limit by rows."""

            max_rows: int

        class SupportsTriggerAvailableNow:
            """Stand-in for PySpark's mark of readers for ``Trigger.AvailableNow``."""
