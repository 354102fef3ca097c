"""Logins by PLAIN wait for their turn only as long as the client waits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shoal.gateway import UserFile, make_entry
from shoal.gateway.login import exchange
from shoal_broker import BrokerCluster
from tests.broker.wire import PATIENCE_S, Wire, framed
from tests.gateway.behind import Behind, gateway_before, wait_until
from tests.gateway.test_login import PLAIN_TOKEN, handshake
from tests.gateway.test_users import written

Connect = Callable[[str], Wire]

MOST_CONNECTIONS = 3


@pytest.fixture
def users(tmp_path: Path) -> UserFile:
    return UserFile(written(tmp_path, make_entry("bob", "bob-secret")))


@pytest.fixture
def busy() -> Iterator[ExitStack]:
    """All turns are taken until this is closed."""
    with ExitStack() as turns:
        for number in range(os.cpu_count() or 1):
            turns.enter_context(exchange.TURNS.turn("others", number))
        yield turns


def waiting() -> int:
    return exchange.TURNS.waiting


def wait_for_turn(behind: Behind, connect: Connect) -> Wire:
    """Log in up to the step that computes hashes."""
    wire = connect(behind.address())
    wire.send_bytes(handshake(0, "PLAIN"))
    assert wire.receive_frame() is not None
    wire.send_bytes(framed(PLAIN_TOKEN))
    return wire


def test_evicted_connections_stop_waiting(
    cluster: BrokerCluster,
    users: UserFile,
    connect: Connect,
    busy: ExitStack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # At once, and not when they look the next time.
    monkeypatch.setattr(exchange.TURNS, "look_s", PATIENCE_S * 2)
    with gateway_before(
        cluster, users=users, mechanisms=("PLAIN",), most_connections=MOST_CONNECTIONS
    ) as behind:
        for number in range(1, 4 * MOST_CONNECTIONS):
            wait_for_turn(behind, connect)
            wait_until(
                lambda number=number: waiting() == min(number, MOST_CONNECTIONS),  # type: ignore[misc]
                f"{waiting()} of {number} wait",
            )
        wait_until(
            lambda: len(behind.gateway._bootstrap._sockets) == MOST_CONNECTIONS + 1, "descriptors are left"
        )
        busy.close()


def test_client_that_hung_up_is_not_waited_for(
    cluster: BrokerCluster, users: UserFile, connect: Connect, busy: ExitStack
) -> None:
    with gateway_before(cluster, users=users, mechanisms=("PLAIN",)) as behind:
        leaving, staying = (wait_for_turn(behind, connect) for _ in range(2))
        wait_until(lambda: waiting() == 2, "they do not wait")
        leaving.close()
        wait_until(lambda: waiting() == 1 and behind.gateway.connections == 1, "it waits still")
        busy.close()
        assert staying.receive_frame() == b""


@pytest.mark.usefixtures("busy")
def test_login_beyond_its_deadline_stops_waiting(
    cluster: BrokerCluster, users: UserFile, connect: Connect
) -> None:
    with gateway_before(cluster, users=users, mechanisms=("PLAIN",), login_s=1.0) as behind:
        wire = wait_for_turn(behind, connect)
        wire.socket.settimeout(PATIENCE_S / 3)
        assert wire.receive_frame() is None
        assert waiting() == 0
