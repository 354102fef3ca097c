"""The options of an inspection."""

from __future__ import annotations

from dataclasses import dataclass

from .. import kinds
from ..declare import option, read_fields

__all__ = ["InspectOptions"]

_MIB = 1024 * 1024
_MOST_BYTES = 2**50


@dataclass(frozen=True, slots=True)
class InspectOptions:
    """The options of an inspection."""

    sample: int = option(
        kinds.size(1, _MOST_BYTES),
        "bytes to read of each partition: at its start, its end and two places between",
        default=4 * _MIB,
        group="reading",
    )
    all: bool = option(kinds.FLAG, "read all batches", group="reading")

    def __post_init__(self) -> None:
        read_fields(self)
