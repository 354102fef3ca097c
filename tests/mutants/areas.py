"""The parts of ``src/shoal`` that are mutated, and the tests that are to kill their mutants."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

__all__ = ["AREAS", "CAMPAIGNS", "ROOT", "SOURCES", "Area", "modules_of"]

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "shoal"

#: The random campaigns that need no process but their own.
CAMPAIGNS = ("tests/campaigns/test_campaign.py",)


class Area(NamedTuple):
    """
    A part of the package.

    Attributes:
        sources: Its modules, as patterns below ``src/shoal``.
        tests: Its tests, as paths of files and directories.

    """

    sources: tuple[str, ...]
    tests: tuple[str, ...]


AREAS = {
    "records": Area(("records/**/*.py",), ("tests/records",)),
    "protocol": Area(("protocol/**/*.py",), ("tests/protocol",)),
    "client": Area(("client/**/*.py",), ("tests/client",)),
    "copy": Area(("mirroring/task/*.py",), CAMPAIGNS),
    "resume": Area(("mirroring/task/resume/*.py",), CAMPAIGNS),
    "position": Area(
        ("mirroring/task/moving_position.py", "mirroring/model/position.py", "mirroring/positions.py"),
        CAMPAIGNS,
    ),
    "verify": Area(("verify/**/*.py",), ("tests/verify",)),
}


def modules_of(areas: Iterable[str]) -> list[Path]:
    """Return the modules of some areas, each once, sorted."""
    patterns = [pattern for area in areas for pattern in AREAS[area].sources]
    return sorted({module for pattern in patterns for module in SOURCES.glob(pattern)})
