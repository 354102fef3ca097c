"""The gateway's file of users."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections import Counter
from pathlib import Path
from typing import Any

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


def test_user_file_has_credentials_in_kafka_s_form(tmp_path: Path) -> None:
    users = UserFile(written(tmp_path, f'[user]\nSCRAM-SHA-256 = "{PENCIL}"\n'))
    assert str(users.credential("user", "SCRAM-SHA-256")) == PENCIL
    assert users.check_password("user", "pencil")
    assert not users.check_password("user", "pencils")
    assert len(users) == 1


@pytest.mark.parametrize("name", ["alice", "a.b c", 'quo"te\\', "zoë"])
def test_created_entry_can_be_read(tmp_path: Path, name: str) -> None:
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
    with pytest.raises(ConfigError, match=r"password.*empty"):
        make_entry("alice", "")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_file_accessible_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path, make_entry("alice", "secret"), mode)
    with pytest.raises(ConfigError, match=rf"0{mode:o}.*600.*{path}"):
        UserFile(path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the file has no users"),
        ("[alice", "users.toml: "),
        ('alice = "secret"', "'alice' is not a table of credentials"),
        ("[alice]", "'alice' is not a table of credentials"),
        ('[alice]\nSCRAM-SHA-25 = "x"', "not a SCRAM mechanism. Did you mean SCRAM-SHA-256"),
        ('[alice]\nSCRAM-SHA-256 = "secret"', "SCRAM-SHA-256 of 'alice' does not have the form"),
        (f'[alice]\nSCRAM-SHA-256 = "{PENCIL[:-4]}4095"', "has 4095 iterations"),
        (f'[alice]\nSCRAM-SHA-512 = "{PENCIL}"', "a key has 64 bytes"),
        (f'[alice]\nSCRAM-SHA-256 = "{PENCIL.replace("W22Z", "W22!")}"', "is not valid base64"),
    ],
)
def test_malformed_file_is_refused_without_a_secret_in_the_error(
    tmp_path: Path, text: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        UserFile(written(tmp_path, text))
    assert sentence in str(raised.value)
    assert "WG5d8oPm" not in str(raised.value)
    assert "secret" not in str(raised.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--users.*file"):
        UserFile(tmp_path / "gone")


def test_changed_file_is_reloaded_and_a_malformed_one_reported(tmp_path: Path) -> None:
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
    assert all(each in said[0] for each in (f"--users {tmp_path}/", "the former file"))


def replace(directory: Path, text: str) -> None:
    """As editors do: no moment without a whole file."""
    new = directory / "new"
    new.write_text(text)
    new.chmod(0o600)
    new.replace(directory / "users.toml")


def test_unknown_user_has_a_constant_credential_like_others(tmp_path: Path) -> None:
    users = UserFile(written(tmp_path, make_entry("alice", "secret")))
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        known, unknown = (users.credential(name, mechanism) for name in ("alice", "mallory"))
        assert unknown == users.credential("mallory", mechanism)
        assert unknown != users.credential("eve", mechanism)
        assert (len(unknown.salt), unknown.iterations) == (len(known.salt), known.iterations)
        assert len(unknown.stored_key) == len(known.stored_key)
    assert not users.check_password("mallory", "secret")


# Differences between a user of the file and an unknown one


def entry(name: str, *mechanisms: str, iterations: int = 8192, salt: bytes = b"s" * 32) -> str:
    """A user whose password is ``secret``."""
    lines = [f"[{name}]"]
    for mechanism in mechanisms:
        algorithm = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        key = hashlib.pbkdf2_hmac(algorithm, b"secret", salt, iterations)
        stored = hashlib.new(algorithm, hmac.digest(key, b"Client Key", algorithm)).digest()
        server = hmac.digest(key, b"Server Key", algorithm)
        fields = [base64.b64encode(each).decode() for each in (salt, stored, server)]
        lines.append(
            f'{mechanism} = "salt={fields[0]},stored_key={fields[1]},server_key={fields[2]},'
            f'iterations={iterations}"'
        )
    return "\n".join([*lines, ""])


BOTH = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.mark.parametrize(
    "text",
    [
        make_entry("alice", "secret") + make_entry("bob", "secret"),
        entry("alice", "SCRAM-SHA-512") + entry("bob", "SCRAM-SHA-512"),
        entry("alice", *BOTH) + entry("bob", *reversed(BOTH)),
        entry("alice", "SCRAM-SHA-512", iterations=16384) + entry("bob", "SCRAM-SHA-256", iterations=4096),
        entry("alice", *BOTH) + entry("carol", *BOTH) + entry("bob", *BOTH, iterations=5000),
    ],
    ids=["made here", "SHA-512 only", "in another order", "another mechanism", "other iterations"],
)
def test_password_check_hashes_alike_for_every_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    users = UserFile(written(tmp_path, text))
    spent: Counter[str] = Counter()
    pbkdf2 = hashlib.pbkdf2_hmac

    def counted(algorithm: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        spent[algorithm] += iterations
        return pbkdf2(algorithm, password, salt, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    costs = []
    for name, password in [
        ("alice", "secret"),
        ("alice", "x"),
        ("bob", "secret"),
        ("bob", "x"),
        ("eve", "x"),
    ]:
        spent.clear()
        assert users.check_password(name, password) == (password == "secret")
        costs.append(dict(spent))
    assert costs == [costs[0]] * len(costs)


def test_unknown_users_have_salts_as_kafka_makes_them_if_users_have(tmp_path: Path) -> None:
    users = UserFile(written(tmp_path, entry("alice", "SCRAM-SHA-256", salt=b"1n2jlk7qq1r0u4o5pno5h3xg0")))
    salts = [users.credential(f"unknown-{number}", "SCRAM-SHA-256").salt for number in range(200)]
    assert len(set(salts)) == 200
    # ScramFormatter.secureRandomString: 130 random bits in base 36, so 26 characters begin with a 1.
    assert all(re.fullmatch(rb"1[0-9a-z]{25}|[0-9a-z]{20,25}", salt) for salt in salts)
    assert {25, 26} <= {len(salt) for salt in salts}


@pytest.mark.parametrize("length", [12, 16, 64])
def test_unknown_users_have_salts_as_long_as_users_have(tmp_path: Path, length: int) -> None:
    users = UserFile(written(tmp_path, entry("alice", *BOTH, salt=bytes(range(128, 128 + length)))))
    for mechanism in BOTH:
        assert len(users.credential("unknown", mechanism).salt) == length


def test_unknown_users_differ_as_users_do(tmp_path: Path) -> None:
    text = "".join(
        entry(f"user-{number}", "SCRAM-SHA-256", iterations=4096 if number % 2 else 16384)
        for number in range(10)
    )
    users = UserFile(written(tmp_path, text))
    names = [f"unknown-{number}" for number in range(200)]
    seen = Counter(users.credential(name, "SCRAM-SHA-256").iterations for name in names)
    assert set(seen) == {4096, 16384}
    before: list[Any] = [users.credential(name, "SCRAM-SHA-256") for name in names]
    replace(tmp_path, text + entry("new", "SCRAM-SHA-256", iterations=16384))
    after = [users.credential(name, "SCRAM-SHA-256") for name in names]
    assert [each.salt for each in after] == [each.salt for each in before]
    assert users.check_password("new", "secret")
    assert sum(old == new for old, new in zip(before, after, strict=True)) > 100
