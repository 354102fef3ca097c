"""Access tokens: their claims, and their texts from files and from classes of the user."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rig.identity_provider import encoded
from shoal.client.security.login import NoCredentials, OAuthLogin, TokenClass, TokenFile
from shoal.client.security.token import read_token
from shoal.client.security.tokens import retrieve
from shoal.errors import ConfigError
from tests.snapshots import Texts


def jwt(**claims: object) -> str:
    return f"{encoded({'alg': 'RS256'})}.{encoded(claims)}.c2lnbmVk"


def test_claims_of_a_jwt_are_read() -> None:
    token = read_token(f" {jwt(sub='alice', exp=time.time() + 60)}\n", "it")
    assert token.subject == "alice"
    assert token.lives_s is not None
    assert 50 < token.lives_s <= 60


def test_claim_of_the_subject_can_be_chosen() -> None:
    assert read_token(jwt(sub="id-7", azp="mirror"), "it", subject_claim="azp").subject == "mirror"


def test_stated_lifetime_is_independent_of_the_clock() -> None:
    assert read_token(jwt(exp=time.time() - 60), "it", lives_s=300).lives_s == 300


@pytest.mark.parametrize(
    "text", ["opaque", "a.b.c", "a.bm90IGpzb24.c", f"a.{encoded({'exp': True})}.c", "a.b", "a.b.c.d.e"]
)
def test_token_that_is_no_jwt_is_opaque(text: str) -> None:
    token = read_token(text, "it")
    assert (token.value, token.subject, token.lives_s) == (text, "", None)


@pytest.mark.parametrize("text", ["", " \n", '{"access_token": "x"}', "a" * 500_001, jwt(exp=0)])
def test_unusable_token_is_named_by_its_source(text: str, texts: Texts) -> None:
    with pytest.raises(NoCredentials) as error:
        read_token(text, "the file")
    texts(str(error.value))
    assert not error.value.may_pass


def test_token_file_is_read_at_each_login(tmp_path: Path) -> None:
    file = tmp_path / "token of shoal"
    login = OAuthLogin(TokenFile(str(file)))
    with pytest.raises(NoCredentials, match=r"token.*file") as error:
        retrieve(login)
    assert not error.value.may_pass
    for name in ("first", "second"):
        file.write_text(f"{name}\n")
        assert retrieve(login).value == name
    file.write_bytes(b"\xff")
    with pytest.raises(NoCredentials, match=r"read.*text"):
        retrieve(login)


class Tokens:
    """Gives tokens that count its objects and calls."""

    objects = 0

    def __init__(self, options: dict[str, str]) -> None:
        Tokens.objects += 1
        self._options = options
        self._calls = 0

    def token(self) -> str:
        self._calls += 1
        return f"{self._options['prefix']}-{Tokens.objects}-{self._calls}"


class Failing:
    """Fails, or returns what the option says."""

    def __init__(self, options: dict[str, str]) -> None:
        self._how = options.get("how", "")

    def token(self) -> object:
        if self._how == "config":
            raise ConfigError("the vault has no such path. Set VAULT_PATH")
        if self._how == "bytes":
            return b"token"
        raise TimeoutError("the vault does not answer")


class WithoutToken:
    """Is no source of tokens."""


def test_class_of_the_user_gives_tokens_by_one_object() -> None:
    login = OAuthLogin(TokenClass(f"{__name__}:Tokens", (("prefix", "t"),)))
    assert [retrieve(login).value for _ in range(2)] == ["t-1-1", "t-1-2"]


@pytest.mark.parametrize(("how", "may_pass"), [("", True), ("config", False), ("bytes", False)])
def test_failure_of_the_user_s_class_is_named(how: str, may_pass: bool, texts: Texts) -> None:
    with pytest.raises(NoCredentials) as error:
        retrieve(OAuthLogin(TokenClass(f"{__name__}:Failing", (("how", how),))))
    texts(str(error.value))
    assert error.value.may_pass is may_pass


def test_class_without_a_method_token_is_refused() -> None:
    with pytest.raises(NoCredentials, match="method"):
        retrieve(OAuthLogin(TokenClass(f"{__name__}:WithoutToken")))
