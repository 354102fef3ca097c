"""Two brokers for each test."""

from collections.abc import Iterator

import pytest

from tests.two_brokers import History, TwoBrokers


@pytest.fixture
def brokers() -> Iterator[TwoBrokers]:
    with TwoBrokers.started() as started:
        yield started


@pytest.fixture
def history(brokers: TwoBrokers) -> History:
    """The one partition of the topic ``topic``."""
    return brokers.topic()[0]
