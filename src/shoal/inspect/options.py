"""The options of an inspection."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import kinds
from ..declare import option, read_fields

__all__ = ["InspectOptions"]

_MIB = 1024 * 1024

_SIZE = kinds.size(1, 2**50)

#: The word for everything.
_ALL = "all"


def _read_sample(option: str, value: object) -> int | None:
    found: int | None = None if str(value).lower() == _ALL else _SIZE.read(option, value)
    return found


@dataclass(frozen=True, slots=True)
class InspectOptions:
    """
    The options of an inspection.

    Attributes:
        sample: None reads all batches.

    """

    sample: int | None = option(
        replace(_SIZE, read=_read_sample, metavar=f"BYTES|{_ALL}"),
        "bytes to read of each partition, at its start, its end and two places between, or all batches",
        default=4 * _MIB,
        group="reading",
    )

    def __post_init__(self) -> None:
        read_fields(self)
