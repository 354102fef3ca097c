"""Turns go to the client that has recently used the least CPU."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from shoal.net.turns import Turns

PATIENCE_S = 120.0


def burn(cpu_s: float) -> None:
    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        pass


def order_of(turns: Turns, asked: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Hold the only turn until all clients wait, in this order; return the order in which they got theirs."""
    order: list[tuple[str, str]] = []

    def ask(client: tuple[str, str]) -> None:
        with turns.turn(*client):
            order.append(client)

    threads = [threading.Thread(target=ask, args=(client,)) for client in asked]
    with turns.turn("holder"):
        for count, thread in enumerate(threads, 1):
            thread.start()
            _wait_until(partial(_as_many_wait, turns, count))
    for thread in threads:
        thread.join(PATIENCE_S)
    return order


def _as_many_wait(turns: Turns, count: int) -> bool:
    return turns.waiting == count


def _wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_turn_goes_to_client_with_least_use() -> None:
    turns = Turns(1)
    with turns.turn("dear", "dear 0"):
        burn(0.3)
    asked = [*(("dear", f"dear {number}") for number in range(6)), ("honest", "honest 0")]
    assert order_of(turns, asked)[0] == ("honest", "honest 0")


def test_turn_between_connections_of_one_address_goes_to_least_use() -> None:
    turns = Turns(1)
    with turns.turn("nat", "dear"):
        burn(0.3)
    assert order_of(turns, [("nat", "dear"), ("nat", "honest")]) == [("nat", "honest"), ("nat", "dear")]


def test_turn_between_equal_clients_goes_in_order() -> None:
    asked = [(f"host {number}", "one") for number in range(5)]
    assert order_of(Turns(1), asked) == asked


def test_turn_that_raises_passes_on() -> None:
    turns = Turns(1)
    for _ in range(3):
        try:
            with turns.turn("a"):
                raise ValueError
        except ValueError:
            pass
    with turns.turn("b"):
        pass


def test_simultaneous_turns_do_not_exceed_the_limit() -> None:
    turns, now, most, lock = Turns(2), [0], [0], threading.Lock()

    def work(number: int) -> None:
        for _ in range(20):
            with turns.turn(number % 3):
                with lock:
                    now[0] += 1
                    most[0] = max(most[0], now[0])
                time.sleep(0)
                with lock:
                    now[0] -= 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert most[0] == 2
    assert now[0] == 0


class Left(Exception):
    """The client has disconnected."""


def test_turn_of_client_that_left_ends_without_one() -> None:
    turns, has_left, order = Turns(1), threading.Event(), []

    def leave() -> None:
        if has_left.is_set():
            raise Left

    def ask(name: str) -> None:
        try:
            with turns.turn(name, check=leave if name == "leaving" else None):
                order.append(name)
        except Left:
            order.append(f"{name} left")

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("leaving", "staying")]
    with turns.turn("holder"):
        for count, thread in enumerate(threads, 1):
            thread.start()
            _wait_until(partial(_as_many_wait, turns, count))
        has_left.set()
        _wait_until(partial(_as_many_wait, turns, 1))
    for thread in threads:
        thread.join(PATIENCE_S)
    assert order == ["leaving left", "staying"]
    assert turns.free == 1


def test_look_calls_the_check_at_once() -> None:
    turns = Turns(1, look_s=PATIENCE_S * 2)
    looks, has_left = threading.Semaphore(0), threading.Event()

    def leave() -> None:
        looks.release()
        if has_left.is_set():
            raise Left

    def ask() -> None:
        with contextlib.suppress(Left), turns.turn("host", "mine", check=leave):
            pass

    thread = threading.Thread(target=ask)
    with turns.turn("holder"):
        thread.start()
        assert looks.acquire(timeout=PATIENCE_S)
        has_left.set()
        turns.look("another's")
        assert not looks.acquire(timeout=0.05)
        turns.look("mine")
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert turns.waiting == 0


def test_turn_granted_after_client_left_passes_on() -> None:
    turns, looks = Turns(1), [0]

    def leave_late() -> None:
        looks[0] += 1
        if turns.waiting == 0:  # it has its turn
            raise Left

    def ask() -> None:
        with contextlib.suppress(Left), turns.turn("late", check=leave_late):
            pytest.fail("it had left")

    thread = threading.Thread(target=ask)
    with turns.turn("holder"):
        thread.start()
        _wait_until(partial(_as_many_wait, turns, 1))
    thread.join(PATIENCE_S)
    assert turns.free == 1
