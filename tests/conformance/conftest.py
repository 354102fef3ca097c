"""
The server that a conformance test talks to: each test runs on each server that it applies to.

``tests/tiers.py`` says when. ``--server`` chooses one: ``pytest tests/conformance --server kafka-3.9.2``, or
``--server HOST:PORT`` for a running broker of one node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.broker.new_topic import new_topic, topic, unique
from tests.broker.wire import Wire
from tests.conformance.differences import difference, expected_failure
from tests.conformance.served_wire import ServedWire
from tests.conformance.servers import Server, chosen, every_server, running, runs_every_test, tier_of

__all__ = ["Connect", "new_topic", "topic", "unique"]

Connect = Callable[..., Wire]

_HERE = Path(__file__).parent


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" not in metafunc.fixturenames:
        return
    marks = {mark.name: mark for mark in metafunc.definition.iter_markers()}
    given = chosen(metafunc.config)
    several = "several_batches" in marks
    parameters = [
        pytest.param(server, id=server.name, marks=_tier(server, marks, is_chosen=given is not None))
        for server in given or [each for each in every_server() if several or runs_every_test(each)]
        if server.applies(marks)
    ]
    metafunc.parametrize("server", parameters, indirect=True, scope="session")


def _tier(server: Server, marks: Mapping[str, pytest.Mark], *, is_chosen: bool) -> list[pytest.MarkDecorator]:
    tier = tier_of(server, marks)
    if tier is None:
        return []
    # A server that the command line names is never left out for its tier.
    return [pytest.mark.integration if is_chosen or tier == "integration" else pytest.mark.long]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    own = {item: _server_of(item) for item in items if _needs_server(item)}
    for item, server in own.items():
        if server and (found := difference(item.nodeid, server)):
            item.add_marker(expected_failure(found))
    # pytest would skip a test that applies to no server.
    config.hook.pytest_deselected(items=[item for item, server in own.items() if server is None])
    items[:] = [item for item in items if own.get(item, True)]


def _needs_server(item: pytest.Item) -> bool:
    return item.path.is_relative_to(_HERE) and "server" in getattr(item, "fixturenames", ())


def _server_of(item: pytest.Item) -> Server | None:
    callspec = getattr(item, "callspec", None)
    server = callspec.params.get("server") if callspec else None
    return server if isinstance(server, Server) else None


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with running(request.param) as started:
        yield started


@pytest.fixture
def pass_by(server: Server) -> Callable[[float], None]:
    """Let seconds be over at the embedded broker; those of a real one pass while the test waits."""
    return server.clock.pass_by


@pytest.fixture
def broker_address(server: Server) -> str:
    """For clients of other projects."""
    return server.bootstrap


@pytest.fixture
def connect(server: Server, request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Open a connection, of a client with any name: ``connect("name")``."""
    callspec = getattr(request.node, "callspec", None)
    tested = callspec.params.get("version") if callspec else None
    with ExitStack() as stack:
        yield lambda client_id="test": stack.enter_context(ServedWire(server, client_id, tested))


@pytest.fixture
def wire(connect: Connect) -> Wire:
    return connect()


@pytest.fixture
def creator(server: Server) -> Iterator[Wire]:
    """A connection that no test's versions are about."""
    with ServedWire(server) as connected:
        yield connected


@pytest.fixture(autouse=True)
def _no_handler_fails(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A handler of the embedded broker or of the gateway that raises is a bug, and is logged as an error."""
    yield
    ours = [each for each in caplog.get_records("call") if each.name.startswith("shoal")]
    assert [each for each in ours if each.levelno >= logging.ERROR] == []
