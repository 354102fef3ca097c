"""The broker of the raw consumer's tests, and its log."""

from __future__ import annotations

import pytest

from shoal_broker import Broker
from tests.world.history import History


@pytest.fixture
def log(broker: Broker) -> History:
    return History(broker.log("topic", 0))
