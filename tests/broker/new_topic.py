"""
Topics that a test creates by the wire alone, and their fixtures.

A ``conftest`` that imports the fixtures has a fixture ``creator``: the connection that creates topics.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable

import pytest

from shoal.error_codes import ErrorCode
from tests.broker.wire import PATIENCE_S, Wire

__all__ = ["NewTopic", "create_and_await", "new_topic", "topic", "unique", "unique_name"]

_UNIQUE = uuid.uuid4().hex[:8]
_numbers = itertools.count()

NewTopic = Callable[..., str]


def unique_name() -> str:
    """Return a name that nothing else has."""
    return f"{_UNIQUE}-{next(_numbers)}"


def create_and_await(wire: Wire, name: str, partitions: int = 1, **config: str) -> str:
    """Create a topic, and wait until it can be used; a real cluster takes a moment."""
    # The test batches are old, and a real broker would delete them after a while.
    created = wire.create_topic(name, partitions, **{"retention_ms": "-1", **config})
    assert created.error_code == ErrorCode.NONE, created
    deadline = time.monotonic() + PATIENCE_S
    while any(wire.list_offset(name, -1, partition=each).error_code for each in range(partitions)):
        assert time.monotonic() < deadline, f"{name} has no leaders"
    return name


@pytest.fixture
def unique() -> str:
    """A name that nothing else has."""
    return unique_name()


@pytest.fixture
def new_topic(creator: Wire) -> NewTopic:
    """Create a topic with a name of its own: ``new_topic(partitions, retention_ms="-1")``."""

    def create(partitions: int = 1, **config: str) -> str:
        return create_and_await(creator, f"topic-{unique_name()}", partitions, **config)

    return create


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic()
