"""
The seed of a night: the long tier's random trials are others each night, and can be repeated.

Unless ``--night`` gives another, it is the date, as 20261130. pytest prints it first, and each test's name
has the seed of its own trial: ``make test-night NIGHT=20261130 ARGS='-k 20261130007'``.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

__all__ = ["add_option", "begin", "header", "night_seed", "night_seeds"]

_OPTION = "--night"

#: The seeds of a night have three more digits than its own.
_EACH = 1_000

_nights: list[int] = []


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, type=int, metavar="SEED", help="seed of the long tests (default: today's date)")


def begin(config: pytest.Config) -> None:
    """Choose the seed, before modules that have tests are imported."""
    if config.option.night is None:  # else that of the command line, or of the process that started this one
        config.option.night = int(f"{datetime.now(UTC):%Y%m%d}")
    _nights[:] = [config.option.night]


def header() -> str:
    return f"long tests draw from {_OPTION} {night_seed()}"


def night_seed() -> int:
    """Return the seed of this night."""
    (seed,) = _nights
    return seed


def night_seeds(count: int) -> range:
    """Return the seeds of so many trials of this night, up to a thousand."""
    first = night_seed() * _EACH
    return range(first, first + count)
