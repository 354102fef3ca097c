"""
Kafka 4.1.0's answer and log for each of the produce cases, and their recorder.

Every server is held to ``produce_recordings.json`` (``test_produce_cases``). To record again, as after a new
case: ``python -m tests.conformance.produce_recordings``.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from tests.conformance.playing import Outcome, check
from tests.conformance.produce_cases import CASES

__all__ = ["name_of", "recorded"]

#: Of the line that was recorded. Later lines differ in some cases, which ``differences`` names.
_VERSION = "4.1.2"

_FILE = Path(__file__).with_suffix(".json")


def name_of(case: object, version: int) -> str:
    """Return the name of a recording."""
    return f"{case} v{version}"


@cache
def recorded() -> dict[str, Outcome]:
    """Return all recordings, by their names."""
    found: dict[str, Outcome] = json.loads(_FILE.read_text(encoding="utf-8"))
    return found


def _record() -> None:
    from rig import KafkaCluster
    from tests.broker.new_topic import create_and_await
    from tests.broker.wire import Wire

    outcomes: dict[str, Outcome] = {}
    with KafkaCluster(version=_VERSION) as kafka, Wire(kafka.bootstrap) as wire:
        for case in CASES:
            for version in case.versions:
                topic = create_and_await(wire, f"case-{len(outcomes)}", 1, **case.config)
                outcomes[name_of(case, version)] = check(case, version, wire, wire, topic)
    lines = (f"{json.dumps(name)}: {json.dumps(outcome)}" for name, outcome in outcomes.items())
    _FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    _record()
