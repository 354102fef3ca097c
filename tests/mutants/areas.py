"""The parts of shoal and of its broker that are mutated, and the tests that are to kill their mutants."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "AREAS",
    "CAMPAIGNS",
    "PACKAGES",
    "ROOT",
    "SOURCES",
    "Area",
    "module_named",
    "modules_of",
    "name_of",
]

ROOT = Path(__file__).parents[2]

#: The directories of the packages.
SOURCES = (ROOT / "src", ROOT / "broker" / "src")

PACKAGES = tuple(map(Path.joinpath, SOURCES, ("shoal", "shoal_broker")))

#: The random campaigns that need no process but their own.
CAMPAIGNS = ("tests/campaigns/test_campaign.py",)


class Area(NamedTuple):
    """
    A part of a package.

    Attributes:
        sources: Its modules, as patterns below one of the directories of packages; with ``!`` before it, one
            to leave out.
        tests: Its tests, as paths of files and directories.

    """

    sources: tuple[str, ...]
    tests: tuple[str, ...]


AREAS = {
    "records": Area(("shoal/records/**/*.py",), ("tests/records",)),
    "protocol": Area(("shoal/protocol/**/*.py",), ("tests/protocol",)),
    "client": Area(("shoal/client/**/*.py",), ("tests/client",)),
    # Rows of a data frame have no position, and tests of their own.
    "copy": Area(
        ("shoal/mirroring/task/*.py", "!shoal/mirroring/task/write_rows.py", "shoal/client/send*.py"),
        CAMPAIGNS,
    ),
    "resume": Area(("shoal/mirroring/task/resume/*.py",), CAMPAIGNS),
    "position": Area(
        (
            "shoal/mirroring/task/progress.py",
            "shoal/mirroring/model/position.py",
            "shoal/mirroring/model/runs.py",
            "shoal/mirroring/model/offset_map.py",
            "shoal/mirroring/model/reports.py",
            "shoal/mirroring/positions.py",
        ),
        CAMPAIGNS,
    ),
    "driver": Area(
        ("shoal/mirroring/driver/**/*.py",), ("tests/mirroring/driver", "tests/mirroring/test_first_start.py")
    ),
    "control": Area(
        ("shoal/mirroring/control/**/*.py", "shoal/mirroring/assignment.py"),
        ("tests/mirroring/control", "tests/mirroring/test_moves.py", "tests/mirroring/test_assignment.py"),
    ),
    "monitoring": Area(
        ("shoal/mirroring/monitoring/**/*.py",),
        ("tests/mirroring/monitoring", "tests/mirroring/test_exposition.py"),
    ),
    "sync": Area(("shoal/mirroring/sync/**/*.py",), ("tests/mirroring/sync",)),
    "verify": Area(("shoal/verify/**/*.py",), ("tests/verify",)),
    "gateway": Area(("shoal/gateway/**/*.py",), ("tests/gateway",)),
    "cli": Area(("shoal/cli/**/*.py",), ("tests/cli",)),
    "mirrormaker": Area(("shoal/mirrormaker/**/*.py",), ("tests/mirrormaker",)),
    "broker": Area(("shoal_broker/**/*.py",), ("tests/conformance", "tests/broker")),
}


def modules_of(areas: Iterable[str]) -> list[Path]:
    """Return the modules of some areas, each once, sorted."""
    found: set[Path] = set()
    for pattern in (pattern for area in areas for pattern in AREAS[area].sources):
        modules = {module for root in SOURCES for module in root.glob(pattern.removeprefix("!"))}
        found = found - modules if pattern.startswith("!") else found | modules
    return sorted(found)


def name_of(module: Path) -> str:
    """Return a module's path below the directory of its package."""
    (root,) = (root for root in SOURCES if module.is_relative_to(root))
    return str(module.relative_to(root))


def module_named(name: str) -> Path:
    """Return the module that `name_of` names."""
    (found,) = (root / name for root in SOURCES if (root / name).exists())
    return found
