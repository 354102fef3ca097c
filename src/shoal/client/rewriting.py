"""The limit of batches that a raw client has to decode, and write again."""

from __future__ import annotations

from typing import Any

from ..errors import ExpandsTooFar, UnsupportedBatch
from ..records.compression import DEFAULT_LIMIT_BYTES
from .properties import integer, java

__all__ = ["most_decompressed", "reason_with_property"]

_PROPERTY = "shoal.max.decompressed.bytes"


def most_decompressed() -> Any:
    """Declare the property for the largest decompressed batch."""
    return java(_PROPERTY, str(DEFAULT_LIMIT_BYTES), integer(1, 2**40))


def reason_with_property(error: UnsupportedBatch) -> str:
    """Return an error's reason, with the property that sets the limit if the batch is above it."""
    return f"{error.reason} ({_PROPERTY})" if isinstance(error, ExpandsTooFar) else error.reason
