"""A limited good is shared fairly, and those that block others are ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from shoal.net.budget import Budget, Refused, Share

PATIENCE_S = 120.0


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def order_of(budget: Budget, asked: list[tuple[str, int]], *held: Share) -> list[str]:
    """Let clients wait in this order, give the held shares back, and return the order of their shares."""
    order: list[str] = []

    def ask(network: str, amount: int) -> None:
        with budget.share(network, amount):
            order.append(network)

    threads = [threading.Thread(target=ask, args=each) for each in asked]
    for count, thread in enumerate(threads, 1):
        thread.start()
        wait_until(partial(lambda count: budget.waiting == count, count))
    for each in held:
        budget.give_back(each)
    for thread in threads:
        thread.join(PATIENCE_S)
    return order


# Order


def test_share_goes_to_the_client_that_holds_the_least() -> None:
    budget = Budget(3)
    mine, large = budget.take("busy"), budget.take("other", 2)
    order = order_of(budget, [("busy", 2), ("busy", 2), ("idle", 2)], large)
    assert order == ["idle", "busy", "busy"]
    budget.give_back(mine)


def test_share_goes_to_the_client_that_was_served_longest_ago() -> None:
    budget = Budget(1)
    holder = budget.take("busy")
    assert order_of(budget, [("busy", 1)] * 4 + [("idle", 1)], holder)[0] == "idle"


def test_shares_of_equal_clients_go_in_order() -> None:
    budget = Budget(1)
    asked = [(f"host {number}", 1) for number in range(5)]
    assert order_of(budget, asked, budget.take("holder")) == [name for name, _ in asked]


def test_waiting_share_of_a_client_at_its_limit_delays_no_other() -> None:
    budget = Budget(3, most_of_network=1)
    held = budget.take("a")
    thread = threading.Thread(target=budget.take, args=("a",), daemon=True)
    thread.start()
    wait_until(lambda: budget.waiting == 1)
    budget.take("b")
    assert (budget.held, budget.waiting) == (2, 1)
    budget.give_back(held)
    thread.join(PATIENCE_S)
    assert budget.held == 2


def test_simultaneous_shares_do_not_exceed_the_limit() -> None:
    budget, now, most, lock = Budget(2), [0], [0], threading.Lock()

    def work(number: int) -> None:
        for _ in range(20):
            with budget.share(f"client {number % 3}"):
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
    assert (most[0], budget.held, budget.waiting) == (2, 0, 0)


# Ends of waits


class Left(Exception):
    """The client has disconnected."""


def test_client_that_left_stops_to_wait() -> None:
    budget, has_left, ended = Budget(1), threading.Event(), threading.Event()

    def check() -> None:
        if has_left.is_set():
            raise Left

    def ask() -> None:
        with pytest.raises(Left):
            budget.take("leaving", check=check)
        ended.set()

    with budget.share("holder"):
        threading.Thread(target=ask, daemon=True).start()
        wait_until(lambda: budget.waiting == 1)
        has_left.set()
        assert ended.wait(PATIENCE_S)
        assert (budget.held, budget.waiting) == (1, 0)
    assert budget.held == 0


# Making room


class Held:
    """A share that is given back when it is ended, and the names of those that were."""

    def __init__(self, budget: Budget, ended: list[str], name: str, network: str, amount: int = 1) -> None:
        self._budget, self._ended, self._name = budget, ended, name
        self.share = budget.take(network, amount, end=self.end)

    def end(self) -> None:
        self._ended.append(self._name)
        self._budget.give_back(self.share)


def never() -> None:
    raise AssertionError("the share was ended")


def connections(most: int, most_of_network: int | None = None, **waits: float) -> Budget:
    return Budget(
        most, most_of_network=most_of_network, **{"patience_s": 0, "again_s": 1, "refusal_s": 10, **waits}
    )


def test_new_share_ends_the_oldest_that_can_be_ended() -> None:
    budget, ended = connections(3), list[str]()
    first, *_ = (Held(budget, ended, name, "10.0.0.1") for name in "abc")
    first.share.end = None
    budget.take("10.0.0.2", end=never)
    assert (ended, budget.held) == (["b"], 3)


def test_client_with_the_most_shares_that_can_be_ended_loses_one() -> None:
    budget, ended = connections(4), list[str]()
    for network in ("honest", "honest", "flood", "flood"):
        held = Held(budget, ended, network, network)
        if network == "honest" and held.share.end and budget.held == 1:
            held.share.end = None
    budget.take("flood", end=never)
    assert ended == ["flood"]


def test_share_is_refused_if_none_can_be_ended() -> None:
    budget = connections(2)
    first, _ = budget.take("a"), budget.take("a")
    with pytest.raises(Refused) as refused:
        budget.take("b")
    assert not refused.value.is_of_network
    assert budget.waiting == 0
    budget.give_back(first)
    budget.take("b")


def test_share_beyond_its_client_s_limit_ends_one_of_that_client() -> None:
    budget, ended = connections(10, 2), list[str]()
    for name, network in (("a0", "a"), ("a1", "a"), ("b", "b")):
        Held(budget, ended, name, network)
    budget.take("a")
    assert ended == ["a0"]
    budget.take("a")
    assert ended == ["a0", "a1"]
    with pytest.raises(Refused) as refused:
        budget.take("a")
    assert refused.value.is_of_network


def test_another_share_is_ended_if_the_first_is_not_given_back() -> None:
    budget, ended = connections(2, again_s=0.01), list[str]()
    budget.take("a", end=lambda: ended.append("stuck"))
    Held(budget, ended, "next", "a")
    budget.take("a")
    assert ended == ["stuck", "next"]


def test_share_is_refused_if_no_ended_one_is_given_back() -> None:
    budget = connections(1, again_s=0.01, refusal_s=0.1)
    budget.take("a", end=lambda: None)
    with pytest.raises(Refused):
        budget.take("a")


def test_slow_share_is_ended_after_the_patience_alone() -> None:
    budget, ended = Budget(1, patience_s=0.2, again_s=0.2, refusal_s=0.4), list[str]()
    Held(budget, ended, "slow", "a")
    before = time.monotonic()
    budget.take("b")
    assert ended == ["slow"]
    assert time.monotonic() - before >= 0.2
