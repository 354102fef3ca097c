"""A gateway's slots: which connection receives one, and which is evicted."""

from __future__ import annotations

from functools import partial

import pytest

from shoal.gateway.slots import ClientSlots, NoRoom


def test_new_connection_evicts_the_oldest_unproven_one() -> None:
    ended: list[str] = []
    slots = ClientSlots(3)
    for name in "abc":
        slot = slots.enter("10.0.0.1", partial(ended.append, name))
        if name == "a":
            slot.prove()
    slots.enter("10.0.0.2", lambda: None)
    assert ended == ["b"]
    assert len(slots) == 3


def test_address_with_the_most_unproven_connections_loses_one() -> None:
    ended: list[str] = []
    slots = ClientSlots(3)
    for address in ("honest", "flood", "flood"):
        slots.enter(address, partial(ended.append, address))
    slots.enter("flood", lambda: None)
    assert ended == ["flood"]


def test_connection_is_refused_if_all_others_are_proven() -> None:
    slots = ClientSlots(2)
    held = [slots.enter("10.0.0.1", pytest.fail) for _ in range(2)]
    for each in held:
        each.prove()
    with pytest.raises(NoRoom, match=r"2 are open\. Raise --max-connections to allow more"):
        slots.enter("10.0.0.2", pytest.fail)
    slots.leave(held[0])
    slots.enter("10.0.0.2", pytest.fail)


def test_connection_beyond_its_address_s_limit_evicts_one_of_the_address() -> None:
    ended: list[str] = []
    slots = ClientSlots(10, 2)
    for number in range(2):
        slots.enter("a", partial(ended.append, f"a{number}"))
    slots.enter("b", lambda: ended.append("b"))
    slots.enter("a", lambda: None).prove()
    assert ended == ["a0"]
    slots.enter("a", lambda: None).prove()
    assert ended == ["a0", "a1"]
    with pytest.raises(NoRoom, match="from a was refused: 2 from there are open"):
        slots.enter("a", pytest.fail)


def test_evicted_connection_that_leaves_frees_no_second_slot() -> None:
    slots = ClientSlots(1)
    first = slots.enter("a", lambda: None)
    slots.enter("a", lambda: None).prove()
    slots.leave(first)
    assert len(slots) == 1


def test_connections_of_an_ipv6_network_count_as_one_address() -> None:
    ended: list[str] = []
    slots = ClientSlots(4, 3)
    for address in ("2001:db8:0:2::1", "2001:db8::1", "2001:db8::2", "2001:db8::3%eth0"):
        slots.enter(address, partial(ended.append, address)).is_proven = address.endswith("2")
    slots.enter("10.0.0.1", lambda: None)
    assert ended == ["2001:db8::1"]


def test_limit_of_an_address_is_that_of_its_ipv6_network() -> None:
    slots = ClientSlots(10, 2)
    for address in ("2001:db8::1", "2001:db8::2", "::ffff:10.0.0.1", "10.0.0.1"):
        slots.enter(address, pytest.fail).prove()
    with pytest.raises(NoRoom, match="from 2001:db8::/64 was refused: 2 from there are open"):
        slots.enter("2001:db8::3", pytest.fail)
    with pytest.raises(NoRoom, match=r"from 10\.0\.0\.1 was refused: 2 from there are open"):
        slots.enter("::ffff:10.0.0.1", pytest.fail)
    slots.enter("2001:db8:0:1::1", pytest.fail)
