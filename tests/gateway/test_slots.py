"""A gateway's slots: which connection receives one, and which is evicted."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from shoal.gateway.slots import ClientSlot, ClientSlots, NoRoom
from shoal.timing import Timing

PATIENCE_S = 120


def never(slot: ClientSlot) -> None:
    raise AssertionError("the connection was closed for another one")


def leaving(slots: ClientSlots, ended: list[str], name: str) -> Callable[[ClientSlot], None]:
    """Return a function that notes the end of a connection, and ends it."""

    def hang_up(slot: ClientSlot) -> None:
        ended.append(name)
        slots.leave(slot)

    return hang_up


def test_new_connection_evicts_the_oldest_unproven_one() -> None:
    ended: list[str] = []
    slots = ClientSlots(3)
    for name in "abc":
        slot = slots.enter("10.0.0.1", leaving(slots, ended, name))
        if name == "a":
            slot.prove()
    slots.enter("10.0.0.2", never)
    assert ended == ["b"]
    assert len(slots) == 3


def test_address_with_the_most_unproven_connections_loses_one() -> None:
    ended: list[str] = []
    slots = ClientSlots(3)
    for address in ("honest", "flood", "flood"):
        slots.enter(address, leaving(slots, ended, address))
    slots.enter("flood", never)
    assert ended == ["flood"]


def test_connection_is_refused_if_all_others_are_proven() -> None:
    slots = ClientSlots(2)
    held = [slots.enter("10.0.0.1", never) for _ in range(2)]
    for each in held:
        each.prove()
    with pytest.raises(NoRoom, match=r"2.*--max-connections"):
        slots.enter("10.0.0.2", never)
    slots.leave(held[0])
    slots.enter("10.0.0.2", never)


def test_connection_beyond_its_address_s_limit_evicts_one_of_the_address() -> None:
    ended: list[str] = []
    slots = ClientSlots(10, 2)
    for number in range(2):
        slots.enter("a", leaving(slots, ended, f"a{number}"))
    slots.enter("b", leaving(slots, ended, "b"))
    slots.enter("a", never).prove()
    assert ended == ["a0"]
    slots.enter("a", never).prove()
    assert ended == ["a0", "a1"]
    with pytest.raises(NoRoom, match=r"refused.*2"):
        slots.enter("a", never)


def test_evicted_connection_that_leaves_frees_no_second_slot() -> None:
    slots = ClientSlots(1)
    first = slots.enter("a", leaving(slots, [], "a"))
    slots.enter("a", never).prove()
    slots.leave(first)
    assert len(slots) == 1


def test_new_connection_waits_until_the_evicted_one_has_left() -> None:
    slots = ClientSlots(1)
    is_hung_up = threading.Event()
    first = slots.enter("a", lambda _: is_hung_up.set())
    entering = threading.Thread(target=slots.enter, args=("a", never), daemon=True)
    entering.start()
    assert is_hung_up.wait(PATIENCE_S)
    assert (len(slots), entering.is_alive()) == (1, True)
    slots.leave(first)
    entering.join(PATIENCE_S)
    assert (len(slots), entering.is_alive()) == (1, False)


def test_another_connection_is_evicted_if_the_oldest_does_not_leave() -> None:
    ended: list[str] = []
    slots = ClientSlots(2, timing=Timing(next_leaves_s=0.01))
    slots.enter("a", lambda _: ended.append("stuck"))
    slots.enter("a", leaving(slots, ended, "next"))
    slots.enter("a", never)
    assert ended == ["stuck", "next"]
    assert len(slots) == 2


def test_connection_is_refused_if_no_evicted_one_leaves() -> None:
    slots = ClientSlots(1, timing=Timing(longest_leave_s=0.1))
    slots.enter("a", lambda _: None)
    with pytest.raises(NoRoom):
        slots.enter("a", never)


def test_connections_of_an_ipv6_network_count_as_one_address() -> None:
    ended: list[str] = []
    slots = ClientSlots(4, 3)
    for address in ("2001:db8:0:2::1", "2001:db8::1", "2001:db8::2", "2001:db8::3%eth0"):
        slots.enter(address, leaving(slots, ended, address)).is_proven = address.endswith("2")
    slots.enter("10.0.0.1", never)
    assert ended == ["2001:db8::1"]


def test_limit_of_an_address_is_that_of_its_ipv6_network() -> None:
    slots = ClientSlots(10, 2)
    for address in ("2001:db8::1", "2001:db8::2", "::ffff:10.0.0.1", "10.0.0.1"):
        slots.enter(address, never).prove()
    with pytest.raises(NoRoom, match=r"2001:db8::/64.*2"):
        slots.enter("2001:db8::3", never)
    with pytest.raises(NoRoom, match=r"10\.0\.0\.1.*2"):
        slots.enter("::ffff:10.0.0.1", never)
    slots.enter("2001:db8:0:1::1", never)
