"""SASL tokens that no client should send: the exchange answers or refuses them, and none logs in."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.gateway import MECHANISMS, UserFile, make_entry
from shoal.gateway.login import LoginFailed
from shoal.gateway.login.exchange import begin_exchange
from tests.fuzz.effort import effort


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> UserFile:
    path: Path = tmp_path_factory.mktemp("users") / "users.toml"
    path.touch(0o600)
    path.write_text(make_entry("bob", "bob-secret"))
    return UserFile(path)


#: Parts of the generated tokens.
_PIECES = st.sampled_from(
    ["n,,", "y,,", "p=tls-unique,,", "n=bob", "n==2C", "n=", "r=mine", "r=", "c=biws", "p=eHh4", "s=", "i=1"]
)
_TOKENS = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=30).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(st.one_of(_PIECES, st.text(max_size=5)), max_size=6).map(
        lambda pieces: ",".join(pieces).encode("utf-8", "surrogatepass")
    ),
    st.text(max_size=10).map(lambda text: f"n,,n={text},r=mine".encode("utf-8", "surrogatepass")),
)


@effort(75)
@given(mechanism=st.sampled_from(MECHANISMS), tokens=st.lists(_TOKENS, min_size=1, max_size=3))
def test_arbitrary_token_is_answered_or_refused_without_login(
    users: UserFile, mechanism: str, tokens: list[bytes]
) -> None:
    exchange = begin_exchange(mechanism, users, lambda: None)
    with contextlib.suppress(LoginFailed):
        for token in tokens:
            exchange.receive(token)
    assert exchange.user is None
