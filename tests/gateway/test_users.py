"""The gateway's file of users."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.errors import ConfigError
from shoal.gateway import UserFile, make_entry

#: The user and the password of RFC 7677, section 3, as Kafka stores them.
PENCIL = (
    "salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
    "server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,iterations=4096"
)


def written(directory: Path, text: str, mode: int = 0o600) -> Path:
    path = directory / "users.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_user_file_has_credentials_as_kafka_stores_them(tmp_path: Path) -> None:
    users = UserFile(written(tmp_path, f'[user]\nSCRAM-SHA-256 = "{PENCIL}"\n'))
    assert str(users.credential("user", "SCRAM-SHA-256")) == PENCIL
    assert users.check_password("user", "pencil")
    assert not users.check_password("user", "pencils")
    assert len(users) == 1


@pytest.mark.parametrize("name", ["alice", "a.b c", 'quo"te\\', "zoë"])
def test_entry_that_is_made_can_be_read(tmp_path: Path, name: str) -> None:
    entry = make_entry(name, "päss wörd")
    assert "päss" not in entry
    users = UserFile(written(tmp_path, make_entry("other", "other") + entry))
    assert users.check_password(name, "päss wörd")
    assert not users.check_password(name, "other")


@pytest.mark.parametrize("name", ["", "a\nb", "ﬁ"])
def test_name_that_cannot_log_in_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="the name"):
        make_entry(name, "secret")


def test_password_must_not_be_empty() -> None:
    with pytest.raises(ConfigError, match="the password is empty"):
        make_entry("alice", "")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_file_that_others_may_access_is_refused(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path, make_entry("alice", "secret"), mode)
    with pytest.raises(ConfigError, match=rf"\(mode 0{mode:o}\)\. Run chmod 600 {path}"):
        UserFile(path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "there is no user in it"),
        ("[alice", "users.toml: "),
        ('alice = "secret"', "'alice' is no table of credentials"),
        ("[alice]", "'alice' is no table of credentials"),
        ('[alice]\nSCRAM-SHA-25 = "x"', "no mechanism of SCRAM; did you mean SCRAM-SHA-256"),
        ('[alice]\nSCRAM-SHA-256 = "secret"', "SCRAM-SHA-256 of 'alice' is not of the form"),
        (f'[alice]\nSCRAM-SHA-256 = "{PENCIL[:-4]}4095"', "has 4095 iterations"),
        (f'[alice]\nSCRAM-SHA-512 = "{PENCIL}"', "a key has 64 bytes"),
        (f'[alice]\nSCRAM-SHA-256 = "{PENCIL.replace("W22Z", "W22!")}"', "is not in base64"),
    ],
)
def test_file_that_makes_no_sense_is_refused_without_a_secret(
    tmp_path: Path, text: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        UserFile(written(tmp_path, text))
    assert sentence in str(raised.value)
    assert "WG5d8oPm" not in str(raised.value)
    assert "secret" not in str(raised.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--users .*gone: No such file"):
        UserFile(tmp_path / "gone")


def test_changed_file_is_read_again_and_a_bad_one_is_told(tmp_path: Path) -> None:
    said: list[str] = []
    users = UserFile(written(tmp_path, make_entry("alice", "first")), said.append)
    assert users.check_password("alice", "first")
    replace(tmp_path, make_entry("alice", "second"))
    assert users.check_password("alice", "second")
    assert not users.check_password("alice", "first")
    replace(tmp_path, "[alice")
    assert users.check_password("alice", "second")
    assert users.check_password("alice", "second")
    assert len(said) == 1
    assert "the users of before the change stay" in said[0]


def replace(directory: Path, text: str) -> None:
    """As editors do: no moment without a whole file."""
    new = directory / "new"
    new.write_text(text)
    new.chmod(0o600)
    new.replace(directory / "users.toml")


def test_unknown_user_has_a_credential_that_stays_the_same_and_looks_like_others(tmp_path: Path) -> None:
    users = UserFile(written(tmp_path, make_entry("alice", "secret")))
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        known, unknown = (users.credential(name, mechanism) for name in ("alice", "mallory"))
        assert unknown == users.credential("mallory", mechanism)
        assert unknown != users.credential("eve", mechanism)
        assert (len(unknown.salt), unknown.iterations) == (len(known.salt), known.iterations)
        assert len(unknown.stored_key) == len(known.stored_key)
    assert not users.check_password("mallory", "secret")
