"""
The broker of the tests of requests of clients before Kafka 2.1, and their responses.

Tests that do not ask for ``broker`` run unchanged against a real Kafka of 3.9
or before: ``SHOAL_TEST_BROKER=HOST:PORT pytest tests/broker/apis/old_versions``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal_broker import Broker
from tests.broker.apis.old_versions.frames import OLD_VERSIONS
from tests.broker.conftest import broker_of_kind


@pytest.fixture(scope="module", params=["memory", "files"])
def session_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """If the log is in files, it is read in another way for conversion."""
    with broker_of_kind(request.param, tmp_path_factory, OLD_VERSIONS) as running:
        yield running
