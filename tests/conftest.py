"""Settings for all tests, and the tier of each (``tiers``)."""

import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.tiers import OnlyPython, mark_tiers
from tests.two_brokers import History, TwoBrokers

# No deadline: an example's time depends more on the machine than on the code.
settings.register_profile("shoal", deadline=None)
settings.load_profile("shoal")

_only_python = OnlyPython()
sys.addaudithook(_only_python)


@pytest.hookimpl(tryfirst=True)  # before -m selects by these marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_tiers(config, items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _only_python.running = item
    try:
        return (yield)
    finally:
        _only_python.running = None


@pytest.fixture
def brokers() -> Iterator[TwoBrokers]:
    with TwoBrokers.started() as started:
        yield started


@pytest.fixture
def history(brokers: TwoBrokers) -> History:
    """The one partition of the topic ``topic``."""
    return brokers.topic()[0]
