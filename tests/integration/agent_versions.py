"""The versions of Kafka with which a test starts the Java agent, as parameters: first the newest."""

from collections.abc import Iterable

import pytest

from rig.agent import newest_of_each_line, supported_versions
from rig.jars import KAFKA_VERSION

__all__ = ["EVERY_LINE", "EVERY_VERSION"]


def _parameters(versions: Iterable[str], now: Iterable[str]) -> list[object]:
    """Return a parameter for each version; only those of ``now`` are run before the nightly tier."""
    marks = {version: () if version in now else (pytest.mark.long,) for version in versions}
    return [pytest.param(version, marks=marks[version]) for version in reversed(marks)]


EVERY_LINE = _parameters(newest_of_each_line(), [KAFKA_VERSION])
EVERY_VERSION = _parameters(supported_versions(), [KAFKA_VERSION])
