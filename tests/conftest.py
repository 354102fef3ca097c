"""Settings for all tests, and the tier of each (``tiers``)."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from shoal.client.cluster import Cluster
from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from tests import nights
from tests.conformance.servers import add_option as add_server_option
from tests.snapshots import Texts, add_option, texts_of
from tests.tiers import OnlyPython, mark_tiers
from tests.world.clusters import TwoBrokers, config_of
from tests.world.history import History

if TYPE_CHECKING:
    from tests.browser import Browser

# No deadline: an example's time depends more on the machine than on the code.
settings.register_profile("shoal", deadline=None)
settings.load_profile("shoal")

#: Tests that need a package which the extra test has, and test-core does not.
_OF_EXTRA_TEST = {
    "botocore": ["*/client/security/test_aws.py"],
    "coverage": ["*/tests/mutants/*"],
    "selenium": ["*_browser.py"],
}
_MISSING = [package for package in _OF_EXTRA_TEST if importlib.util.find_spec(package) is None]

collect_ignore_glob = [pattern for package in _MISSING for pattern in _OF_EXTRA_TEST[package]]

_only_python = OnlyPython()
sys.addaudithook(_only_python)


def pytest_addoption(parser: pytest.Parser) -> None:
    add_option(parser)
    add_server_option(parser)
    nights.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    nights.begin(config)


def pytest_report_header() -> list[str]:
    return [
        nights.header(),
        *(f"left out, since {each} is not installed: {_OF_EXTRA_TEST[each]}" for each in _MISSING),
    ]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage while modules and tests come, which stay: that took two fifths of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a test by its error code or its API, not by its number."""
    return val.name if isinstance(val, ErrorCode | ApiKey) else None


@pytest.hookimpl(tryfirst=True)  # before -m selects by these marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_tiers(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _only_python.running = item
    try:
        return (yield)
    finally:
        _only_python.running = None


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A cluster of one, without topics."""
    with Broker() as started:
        yield started


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(config_of("source", broker)) as opened:
        yield opened


@pytest.fixture
def brokers() -> Iterator[TwoBrokers]:
    with TwoBrokers.started() as started:
        yield started


@pytest.fixture
def history(brokers: TwoBrokers) -> History:
    """The one partition of the topic ``topic``."""
    return brokers.topic()[0]


@pytest.fixture
def texts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Texts]:
    yield from texts_of(request, tmp_path)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    # Selenium takes a part of a second, and few tests need it.
    from tests.browser import started_browser

    with started_browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """A window of usual size, with the light scheme."""
    chromium.resize(1280)
    chromium.prefer("light")
    return chromium
