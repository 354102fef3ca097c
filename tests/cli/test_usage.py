"""Mistakes on the command line: one line on stderr, nothing on stdout, the right exit code."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from shoal.cli import main
from tests.snapshots import Texts

CLUSTERS = ("--from", "127.0.0.1:1", "--to", "127.0.0.1:2")


class Run(NamedTuple):
    """An ended command."""

    exit_code: int
    stdout: str
    stderr: str


Shoal = Callable[..., Run]


@pytest.fixture
def shoal(capsys: pytest.CaptureFixture[str]) -> Shoal:
    """Return a function that runs the command line in this process."""
    return lambda *arguments: Run(main(arguments), *capsys.readouterr())


def assert_one_sentence(run: Run, exit_code: int) -> None:
    assert (run.exit_code, run.stdout) == (exit_code, ""), run.stderr
    assert len(run.stderr.splitlines()) == 1, run.stderr
    assert run.stderr.startswith("shoal")


#: Command lines; CLUSTERS stands for two bootstrap servers that no mistake gets as far as asking.
MISTAKES = r"""
--vresion
miror
copy
mirror CLUSTERS
mirror CLUSTERS --topics a --onse
mirror CLUSTERS --topics a --onc
mirror CLUSTERS --topic a
mirror CLUSTERS --topic=a
mirror CLUSTERS -topics a
mirror CLUSTERS --topics --once
mirror CLUSTERS --topics a b
mirror CLUSTERS --topics a --delivery exactly_once
verify --form a:1
mirror-maker --consumer.confg c
gateway --upstrem a:1
mirror CLUSTERS --topics a --max-new-partitions x
mirror CLUSTERS --topics 'a(b'
mirror CLUSTERS --topics a --exclude '['
mirror CLUSTERS --topics a --rename b
mirror CLUSTERS --topics a --start soon
mirror CLUSTERS --topics a --start 99999999999999999999
mirror CLUSTERS --topics a --conf x
mirror CLUSTERS --topics a --continue-after source-reset,send-failure
mirror CLUSTERS --topics a --conf foo=bar
mirror CLUSTERS --topics a --fetch-buffer-bytes 1
mirror CLUSTERS --topics a --fetch-buffer-bytes x
mirror CLUSTERS --topics a --fetch-buffer-bytes 2g
mirror CLUSTERS --topics a --refresh x
mirror CLUSTERS --topics a --refresh 0
mirror CLUSTERS --topics a --metrics :9100
mirror CLUSTERS --topics a --ui 8080
mirror --from a:1 --topics a
mirror --from a --to b:1 --topics a
mirror --from a:1 --to b:1,c:0 --topics a
gateway
gateway --upstream a
gateway --upstream a:1 --listen 9092
gateway --upstream a:1 --listen 192.0.2.1:0
gateway --upstream a:1 --listen 0.0.0.0:0 --allow-any-address
gateway --upstream a:1 --tls-key k
gateway --upstream a:1 --tls-key k --tls-certificate nowhere.pem
gateway --upstream a:1 --buffer-bytes 1
gateway --upstream a:1 --read-only --allow-create-topics
gateway --upstream a:1 --chunk-bytes 0
gateway --upstream a:1 --max-connections x
"""


def test_invalid_usage_is_one_sentence_and_exit_code_2(shoal: Shoal, texts: Texts) -> None:
    told = []
    for mistake in MISTAKES.strip().splitlines():
        run = shoal(*shlex.split(mistake.replace("CLUSTERS", shlex.join(CLUSTERS))))
        assert_one_sentence(run, 2)
        told.append(f"{mistake}\n  {run.stderr.strip()}")
    texts(told)


def test_shoal_without_a_verb_prints_its_help_and_exits_with_2(shoal: Shoal) -> None:
    run = shoal()
    assert (run.exit_code, run.stdout) == (2, "")
    assert run.stderr.startswith("usage: shoal ")
    assert "exits with code 2" in " ".join(run.stderr.split())


#: Contents of a properties file; None for a directory of its name.
BAD_PROPERTIES = [
    None,
    b"bootstrap.servers=\\u12",
    b"bootstrap.servers=a",
    b"client.id=me",
    b"bootstrap.servers=a:1\nisolation.level=dirty",
    b"bootstrap.servers=a:1\nrequest.timeout.ms=99999999999999999999999",
    b"bootstrap.servers=a:1\ntransactional.id=t",
]


def test_bad_properties_file_is_named(
    shoal: Shoal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: Texts
) -> None:
    monkeypatch.chdir(tmp_path)
    told = []
    (tmp_path / "directory").mkdir()
    for number, content in enumerate(BAD_PROPERTIES):
        file = "directory" if content is None else f"{number}.properties"
        if content is not None:
            (tmp_path / file).write_bytes(content)
        run = shoal("mirror", "--from-config", file, "--to", "b:1", "--topics", "a")
        assert_one_sentence(run, 2)
        told.append(run.stderr.strip())
    missing = shoal("mirror", *CLUSTERS, "--to-config", "nowhere.properties", "--topics", "a")
    assert_one_sentence(missing, 2)
    texts([*told, missing.stderr.strip()])


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_go_to_stdout(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([argument])
    out, err = capsys.readouterr()
    assert (ended.value.code, err) == (0, "")
    assert "shoal" in out
