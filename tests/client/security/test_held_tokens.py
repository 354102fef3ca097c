"""Tokens that a process keeps: asked for once, renewed in time, and kept while their source fails."""

from __future__ import annotations

import threading

import pytest

from shoal.client.security.held import Keeper
from shoal.client.security.login import NoCredentials

LOGIN = "a login"

Tokens = Keeper[str, str]


class Source:
    """A source of numbered tokens, and a clock."""

    def __init__(self, lives_s: float = 100.0) -> None:
        self.lives_s = lives_s
        self.now = 1000.0
        self.asked = 0
        self.failure: NoCredentials | None = None

    def retrieve(self, login: str) -> tuple[str, float]:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return f"token-{self.asked}", self.lives_s

    def clock(self) -> float:
        return self.now

    def held(self) -> Tokens:
        return Keeper(self.retrieve, self.clock)


@pytest.fixture
def source() -> Source:
    return Source()


def test_token_is_reused_for_four_fifths_of_its_life(source: Source) -> None:
    tokens = source.held()
    first = tokens.current(LOGIN)
    source.now += 79.9
    assert tokens.current(LOGIN) is first
    source.now += 0.2
    assert tokens.current(LOGIN) == "token-2"
    assert source.asked == 2


def test_each_login_has_its_own_token(source: Source) -> None:
    tokens = source.held()
    assert tokens.current(LOGIN) != tokens.current("another login")


def test_token_without_a_lifetime_serves_for_one_login() -> None:
    tokens = Source(lives_s=0.0).held()
    assert [tokens.current(LOGIN) for _ in range(2)] == ["token-1", "token-2"]


def test_old_token_serves_while_the_source_fails(source: Source) -> None:
    tokens = source.held()
    first = tokens.current(LOGIN)
    source.failure = NoCredentials("it is down", may_pass=True)
    source.now += 90
    assert tokens.current(LOGIN) is first
    source.now += 10.1
    with pytest.raises(NoCredentials, match="it is down") as error:
        tokens.current(LOGIN)
    assert error.value.may_pass


def test_source_that_fails_is_asked_after_pauses(source: Source) -> None:
    tokens = source.held()
    source.failure = NoCredentials("it is down")
    for _ in range(5):
        with pytest.raises(NoCredentials, match="it is down"):
            tokens.current(LOGIN)
    assert source.asked == 1
    source.now += 1.1
    with pytest.raises(NoCredentials):
        tokens.current(LOGIN)
    assert source.asked == 2
    source.failure = None
    source.now += 2.1
    assert tokens.current(LOGIN) == "token-3"


def test_refused_token_is_replaced_at_the_next_login(source: Source) -> None:
    tokens = source.held()
    first = tokens.current(LOGIN)
    tokens.discard(LOGIN, first)
    second = tokens.current(LOGIN)
    assert second == "token-2"
    tokens.discard(LOGIN, first)  # late, of another connection
    assert tokens.current(LOGIN) is second


def test_threads_share_one_request(source: Source) -> None:
    is_asked, may_answer = threading.Event(), threading.Event()

    def slowly(login: str) -> tuple[str, float]:
        is_asked.set()
        assert may_answer.wait(20)
        return source.retrieve(login)

    tokens = Keeper(slowly, source.clock)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(tokens.current(LOGIN))) for _ in range(4)]
    for each in threads:
        each.start()
    assert is_asked.wait(20)
    may_answer.set()
    for each in threads:
        each.join()
    assert set(found) == {"token-1"}


def test_old_token_serves_other_threads_while_one_asks_the_source() -> None:
    now, begun, over = [0.0], threading.Event(), threading.Event()

    def ask(_: str) -> tuple[str, float]:
        if now[0]:
            begun.set()
            assert over.wait(60)
        return f"token at {now[0]:g}", 100.0

    tokens = Keeper(ask, lambda: now[0])
    assert tokens.current(LOGIN) == "token at 0"
    now[0] = 90.0
    asking = threading.Thread(target=tokens.current, args=(LOGIN,))
    asking.start()
    assert begun.wait(60)
    try:
        assert tokens.current(LOGIN) == "token at 0"
    finally:
        over.set()
        asking.join()
    assert tokens.current(LOGIN) == "token at 90"
