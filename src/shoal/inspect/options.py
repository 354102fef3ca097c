"""The options of an inspection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import ConfigError
from ..mirroring.model.option_values import parse_bytes, parse_fields, parse_whole, read_by

__all__ = ["InspectOptions"]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class InspectOptions:
    """
    The options of an inspection.

    Attributes:
        sample: The bytes of each partition that a sample reads, at most and about.
        all: Whether to read all batches instead of a sample.
        ratio_batches: The number of batches of each topic that are decompressed for the ratio, besides the
            first of each codec in a partition; 0 for none at all.

    """

    sample: int = field(default=4 * _MIB, metadata=read_by(parse_bytes))
    all: bool = False
    ratio_batches: int = field(default=8, metadata=read_by(parse_whole))

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> InspectOptions:
        """
        Read the options.

        Raises:
            ConfigError: A value is invalid, or a sample has no bytes.

        """
        options = cls(**parse_fields(cls, given), all=bool(given.get("all")))
        if not options.sample:
            raise ConfigError("--sample '0' reads nothing. Use a number of bytes, such as 4m")
        return options
