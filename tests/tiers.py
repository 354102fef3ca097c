"""The three tiers of the tests, and the only assignment of tests to tiers.

``make test``
    All tests that start nothing but Python: units, embedded brokers, commands without Spark. And one smoke of
    each verb on real Kafka (`SMOKES`, marked ``smoke``).
``make test-integration``
    Marked ``integration``: real Kafka, real Spark, other projects' clients.
``make test-long``
    Marked ``long``: tests that take minutes, need a browser, or repeat a test with another version.

You rarely have to mark a test. All of ``tests/integration`` is ``integration``. If a test uses the fixture
``spark`` or ``browser``, it gets its mark by that. If a test of the first tier starts a JVM, it fails, and
the message names the missing mark.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

__all__ = ["SMOKES", "OnlyPython", "mark_tiers"]

_TESTS = Path(__file__).parent

#: One of each verb on real Kafka, as short as it can be; `make test` runs these of ``tests/integration``.
SMOKES = {
    "mirror --once, verify": "test_mirror.py::test_every_kind_of_batch_is_mirrored_once_and_verified",
    "mirror, leaders move": (
        "test_life.py::test_records_arrive_once_in_order_after_a_disturbance[MOVE_LEADERS-Side.DESTINATION]"
    ),
    "mirror-maker": "test_mirror_maker.py::test_copy_and_commits_equal_those_of_mirror_maker_1",
    "gateway": "test_old_clients.py::test_every_record_of_every_kind_of_batch_is_read[gateway-Java 0.10.2.2]",
    "agent": "test_agent.py::test_batches_are_stored_unchanged[4.4.0-5]",
    'format("shoal")': "test_format_shoal.py::test_job_of_a_standalone_cluster_copies_a_topic",
}

#: Fixtures of these names start Spark or a browser.
_TIER_OF_FIXTURE = {"browser": "long", "spark": "integration"}

#: Programs that only a test with a mark may start.
_HEAVY = ("java", "spark-submit", "spark-class", "chromedriver")


def mark_tiers(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the collected tests.

    Raises:
        pytest.UsageError: A smoke test does not exist any more, though its whole file is collected.
    """
    smokes = {f"tests/integration/{each}" for each in SMOKES.values()}
    for item in items:
        if item.nodeid in smokes:
            item.add_marker(pytest.mark.smoke)
            continue
        if item.path.is_relative_to(_TESTS / "integration"):
            item.add_marker(pytest.mark.integration)
        for fixture in _TIER_OF_FIXTURE.keys() & getattr(item, "fixturenames", ()):
            item.add_marker(_TIER_OF_FIXTURE[fixture])
    if not any("::" in each for each in config.args):
        files = {item.nodeid.partition("::")[0] for item in items}
        there = {item.nodeid for item in items}
        gone = sorted(each for each in smokes - there if each.partition("::")[0] in files)
        if gone:
            raise pytest.UsageError(f"tests/tiers.py: no such test, name another smoke: {', '.join(gone)}")


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
    return any(item.get_closest_marker(each) for each in ("smoke", "integration", "long"))
