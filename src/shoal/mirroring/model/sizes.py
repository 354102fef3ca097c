"""Numbers of bytes, as people write them."""

from __future__ import annotations

import re

from ...errors import ConfigError

__all__ = ["parse_bytes"]

_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}

#: A number with more digits is none of ours; Python itself refuses to read one of thousands.
_MOST_DIGITS = 18


def parse_bytes(option: str, text: str) -> int:
    """
    Read a number of bytes: ``16777216``, ``16384k`` or ``16m``, as Spark writes sizes.

    Raises:
        ConfigError: It is none; names the option.

    """
    match = re.fullmatch(r"(\d+)([kmg]?)b?", text.lower())
    if match is None or len(match[1]) > _MOST_DIGITS:
        raise ConfigError(f"--{option}: invalid size {text!r}. Use a number of bytes, as 16777216 or 16m")
    return int(match[1]) * _UNITS[match[2]]
