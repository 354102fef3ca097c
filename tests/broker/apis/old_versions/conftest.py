"""
The broker of the tests of requests of clients before Kafka 2.1, and their responses.

Tests that do not ask for ``broker`` run unchanged against a real Kafka of 3.9
or before: ``SHOAL_TEST_BROKER=HOST:PORT pytest tests/broker/apis/old_versions``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.broker import Broker
from tests.broker.apis.old_versions.frames import OLD_VERSIONS


@pytest.fixture(scope="module")
def session_broker() -> Iterator[Broker]:
    with Broker(config=OLD_VERSIONS) as running:
        yield running
