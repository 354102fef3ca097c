"""The three tiers of the tests, and the only assignment of tests to tiers.

``make test``
    All tests that start nothing but Python: units, embedded brokers, commands without Spark.
``make test-clusters``
    Marked ``integration``: real Kafka, real Spark, other projects' clients.
``make test-night``
    Marked ``long``: tests that take minutes, need a browser, or repeat a test with another version.

``tests/conformance`` is in all three: each test runs on several servers, and its ``servers.py`` says which
server is in which tier.

You rarely have to mark a test. All of ``tests/integration`` is ``integration``. If a test uses the fixture
``spark`` or ``browser``, it gets its mark by that. If a test of the first tier starts a JVM itself, it fails,
and the message names the missing mark. Nothing sees the JVM of a process that the test starts, such as
``shoal mirror``: mark that test.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

__all__ = ["OnlyPython", "mark_tiers"]

_TESTS = Path(__file__).parent

#: Fixtures of these names start Spark or a browser.
_TIER_OF_FIXTURE = {"browser": "long", "spark": "integration"}

#: Programs that only a test with a mark may start.
_HEAVY = ("java", "spark-submit", "spark-class", "chromedriver")


def mark_tiers(items: list[pytest.Item]) -> None:
    """Mark the collected tests."""
    for item in items:
        if item.path.is_relative_to(_TESTS / "integration"):
            item.add_marker(pytest.mark.integration)
        for fixture in _TIER_OF_FIXTURE.keys() & getattr(item, "fixturenames", ()):
            item.add_marker(_TIER_OF_FIXTURE[fixture])


class OnlyPython:
    """An audit hook: a test of the first tier fails if it starts a JVM or a browser."""

    def __init__(self) -> None:
        self.running: pytest.Item | None = None
        """The running test."""

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "subprocess.Popen" or self.running is None or _may_start_all(self.running):
            return
        program = Path(os.fsdecode(arguments[0]))
        # If the test has written a stand-in itself, it may start that.
        if program.name in _HEAVY and not any(part.startswith("pytest-of-") for part in program.parts):
            pytest.fail(f"starts {program}: mark it with integration or long (tests/tiers.py says which)")


def _may_start_all(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(each) for each in ("integration", "long"))
