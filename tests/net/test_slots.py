"""Slots for connections: which one has to leave for a new one."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from shoal.net.slots import Slot, Slots
from shoal.timing import DEFAULT_TIMING


class Clients:
    """Connections that hold slots; each has a thread that gives the slot back when it has to leave."""

    def __init__(self, slots: Slots, open_until: contextlib.ExitStack) -> None:
        self._slots = slots
        self._open_until = open_until
        self._peers: dict[Slot, socket.socket] = {}

    def connect(self, host: str, *, answered: bool = False) -> Slot:
        ours, theirs = socket.socketpair()
        theirs.settimeout(10)
        slot = self._slots.take(ours, host)
        assert slot is not None
        slot.is_proven = answered
        thread = threading.Thread(target=self._serve, args=(slot,))
        thread.start()
        self._open_until.callback(thread.join)
        self._open_until.callback(theirs.close)
        self._peers[slot] = theirs
        return slot

    def _serve(self, slot: Slot) -> None:
        slot.connection.recv(1)
        slot.connection.close()
        self._slots.give_back(slot)

    def left(self) -> list[Slot]:
        return [slot for slot in self._peers if slot.leaves]


@pytest.fixture
def clients() -> Iterator[Clients]:
    """Four slots."""
    with contextlib.ExitStack() as stack:
        yield Clients(Slots(4, DEFAULT_TIMING.leaving_s), stack)


def test_free_slot_evicts_nothing(clients: Clients) -> None:
    for _ in range(4):
        clients.connect("192.0.2.1")
    assert clients.left() == []


def test_oldest_connection_of_one_address_is_evicted(clients: Clients) -> None:
    first, *_ = [clients.connect("192.0.2.1") for _ in range(4)]
    clients.connect("192.0.2.1")
    assert clients.left() == [first]


def test_connection_without_allowed_request_is_evicted_before_a_reading_one(clients: Clients) -> None:
    reading = clients.connect("192.0.2.1", answered=True)
    silent = [clients.connect("192.0.2.1") for _ in range(3)]
    clients.connect("192.0.2.1")
    assert clients.left() == [silent[0]]
    assert not reading.leaves


def test_address_with_the_most_connections_loses_one(clients: Clients) -> None:
    clients.connect("198.51.100.7")
    greedy = [clients.connect("192.0.2.1", answered=True) for _ in range(3)]
    clients.connect("203.0.113.9")
    assert clients.left() == [greedy[0]]


def test_addresses_of_one_ipv6_network_count_as_one(clients: Clients) -> None:
    clients.connect("2001:db8:1:1::1")
    greedy = [clients.connect(f"2001:db8:2:2::{number}") for number in range(1, 4)]
    clients.connect("2001:db8:3:3::1")
    assert clients.left() == [greedy[0]]


def test_ipv4_address_is_the_same_on_an_ipv6_socket(clients: Clients) -> None:
    clients.connect("2001:db8:1:1::1")
    mapped = [clients.connect("::ffff:192.0.2.1") for _ in range(2)]
    clients.connect("192.0.2.1")
    clients.connect("2001:db8:3:3::1")
    assert clients.left() == [mapped[0]]


def test_no_slot_is_given_while_the_evicted_one_remains() -> None:
    slots = Slots(1, 0.05)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert slots.take(ours, "192.0.2.1") is not None
        assert slots.take(ours, "192.0.2.1") is None
