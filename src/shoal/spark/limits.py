"""
How PySpark limits a micro-batch: its own classes since 4.2; before, nothing is limited.

PySpark 4.0 and 4.1 call ``latestOffset()`` without arguments, and no other method that has to do with limits:
there these classes have the names and fields of the real ones, and nobody outside of this package makes one.
A reader for all of them has ``latestOffset(self, start=None, limit=None)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

__all__ = ["HAS_LIMITS", "ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]

#: Whether PySpark says where a micro-batch starts and how long it may be.
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
            pass

        @dataclass
        class ReadAllAvailable(ReadLimit):
            pass

        @dataclass
        class ReadMaxRows(ReadLimit):
            max_rows: int

        class SupportsTriggerAvailableNow:
            pass
