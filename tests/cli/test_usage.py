"""Mistakes on the command line: one line on stderr, nothing on stdout, the right exit code."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from shoal.cli import main

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


def assert_one_sentence(run: Run, exit_code: int, *parts: str) -> None:
    assert (run.exit_code, run.stdout) == (exit_code, ""), run.stderr
    assert len(run.stderr.splitlines()) == 1, run.stderr
    assert run.stderr.startswith("shoal")
    for part in parts:
        assert part in run.stderr


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--vresion",), ("there is no option --vresion. Did you mean --version? (see shoal --help)",)),
        (("miror",), ("there is no verb 'miror'. Did you mean mirror?", "see shoal --help")),
        (("copy",), ("there is no verb 'copy'. The verbs are mirror, control, mirror-maker,",)),
        (("mirror", *CLUSTERS), ("required: --topics", "see shoal mirror --help")),
        (
            ("mirror", *CLUSTERS, "--topics", "a", "--onse"),
            ("there is no option --onse. Did you mean --once? (see shoal mirror --help)",),
        ),
        (("mirror", *CLUSTERS, "--topics", "a", "--onc"), ("no option --onc. Did you mean --once?",)),
        (("mirror", *CLUSTERS, "--topic", "a"), ("there is no option --topic. Did you mean --topics?",)),
        (("mirror", *CLUSTERS, "--topic=a"), ("there is no option --topic. Did you mean --topics?",)),
        (("mirror", *CLUSTERS, "-topics", "a"), ("there is no option -topics. Did you mean --topics?",)),
        (("mirror", *CLUSTERS, "--topics", "--once"), ("argument --topics: expected one argument",)),
        (("mirror", *CLUSTERS, "--topics", "a", "b"), ("unrecognized arguments: b",)),
        (
            ("mirror", *CLUSTERS, "--topics", "a", "--delivery", "exactly_once"),
            ("argument --delivery: 'exactly_once' is not one of exactly-once, at-least-once. Did you mean",),
        ),
        (("verify", "--form", "a:1"), ("there is no option --form. Did you mean --from?",)),
        (("mirror-maker", "--consumer.confg", "c"), ("Did you mean --consumer.config?",)),
        (("gateway", "--upstrem", "a:1"), ("there is no option --upstrem. Did you mean --upstream?",)),
        (
            ("mirror", *CLUSTERS, "--topics", "a", "--max-new-partitions", "x"),
            ("--max-new-partitions", "'x'"),
        ),
        (("mirror", *CLUSTERS, "--topics", "a(b"), ("--topics 'a(b' is not a regular expression",)),
        (
            ("mirror", *CLUSTERS, "--topics", "a", "--exclude", "["),
            ("--exclude '[' is not a regular expression",),
        ),
        (("mirror", *CLUSTERS, "--topics", "a", "--rename", "b"), ("--rename 'b' is not REGEX=REPLACEMENT",)),
        (
            ("mirror", *CLUSTERS, "--topics", "a", "--start", "soon"),
            ("--start 'soon' is neither earliest nor",),
        ),
        (
            ("mirror", *CLUSTERS, "--topics", "a", "--start", "99999999999999999999"),
            ("--start '99999999999999999999' is neither earliest nor",),
        ),
        (("mirror", *CLUSTERS, "--topics", "a", "--conf", "x"), ("--conf 'x' is not KEY=VALUE",)),
        (
            ("mirror", *CLUSTERS, "--topics", "a", "--continue-after", "source-reset,send-failure"),
            ("--continue-after: 'send-failure' is not one of foreign-records, destination-loss, source-",),
        ),
        (
            ("mirror", *CLUSTERS, "--topics", "a", "--conf", "foo=bar"),
            ("--conf 'foo' is not a Spark setting",),
        ),
        (
            ("mirror", *CLUSTERS, "--topics", "a", "--fetch-buffer-bytes", "1"),
            ("--fetch-buffer-bytes '1': not between 1048576 and",),
        ),
        (
            ("mirror", *CLUSTERS, "--topics", "a", "--fetch-buffer-bytes", "x"),
            ("--fetch-buffer-bytes: invalid size 'x'. Use a number of bytes",),
        ),
        (
            ("mirror", *CLUSTERS, "--topics", "a", "--fetch-buffer-bytes", "2g"),
            ("--fetch-buffer-bytes '2147483648': not between",),
        ),
        (("mirror", *CLUSTERS, "--topics", "a", "--refresh", "x"), ("--refresh", "'x'")),
        (
            ("mirror", *CLUSTERS, "--topics", "a", "--refresh", "0"),
            ("--refresh '0': not between 1 and 86400 seconds",),
        ),
        (
            ("mirror", *CLUSTERS, "--topics", "a", "--metrics", ":9100"),
            ("--metrics ':9100': the host is missing. Use 127.0.0.1:9100",),
        ),
        (("mirror", *CLUSTERS, "--topics", "a", "--ui", "8080"), ("--ui '8080' is not HOST:PORT",)),
        (("mirror", "--from", "a:1", "--topics", "a"), ("--to is required",)),
        (
            ("mirror", "--from", "a", "--to", "b:1", "--topics", "a"),
            ("--from: invalid address 'a'. Use HOST:PORT, such as a:9092",),
        ),
        (
            ("mirror", "--from", "a:1", "--to", "b:1,c:0", "--topics", "a"),
            ("--to: invalid address 'c:0'. Use HOST:PORT",),
        ),
        (("gateway",), ("--upstream is required: the bootstrap servers of the upstream cluster",)),
        (("gateway", "--upstream", "a"), ("--upstream: invalid address 'a'. Use HOST:PORT",)),
        (("gateway", "--upstream", "a:1", "--listen", "9092"), ("--listen '9092' is not HOST:PORT",)),
        (("gateway", "--upstream", "a:1", "--listen", "192.0.2.1:0"), ("loopback", "--allow-any-address")),
        (
            ("gateway", "--upstream", "a:1", "--listen", "0.0.0.0:0", "--allow-any-address"),
            ("would advertise '0.0.0.0', which clients cannot connect to. Set --advertise HOST",),
        ),
        (("gateway", "--upstream", "a:1", "--tls-key", "k"), ("both --tls-certificate and --tls-key",)),
        (
            ("gateway", "--upstream", "a:1", "--tls-key", "k", "--tls-certificate", "nowhere.pem"),
            ("--tls-certificate nowhere.pem: there is no such file",),
        ),
        (
            ("gateway", "--upstream", "a:1", "--buffer-bytes", "1"),
            ("--buffer-bytes '1': not between 65536 and",),
        ),
        (
            ("gateway", "--upstream", "a:1", "--read-only", "--allow-create-topics"),
            ("--read-only and --allow-create-topics exclude each other",),
        ),
        (("gateway", "--upstream", "a:1", "--chunk-bytes", "0"), ("--chunk-bytes '0': not between 1 and",)),
        (
            ("gateway", "--upstream", "a:1", "--max-decompressed-bytes", "1"),
            ("--max-decompressed-bytes '1': not between 65536 and",),
        ),
        (("gateway", "--upstream", "a:1", "--max-connections", "x"), ("--max-connections", "'x'")),
    ],
)
def test_invalid_usage_is_one_sentence_and_exit_code_2(
    shoal: Shoal, arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    assert_one_sentence(shoal(*arguments), 2, *parts)


def test_shoal_without_a_verb_prints_its_help_and_exits_with_2(shoal: Shoal) -> None:
    run = shoal()
    assert (run.exit_code, run.stdout) == (2, "")
    assert run.stderr.startswith("usage: shoal ")
    assert "exits with code 2" in " ".join(run.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("mirror", *CLUSTERS, "--topics", "a", "--json", "--onec"), "there is no option --onec"),
        (("verify", "--json"), "the following arguments are required: --topics"),
        (("miror", "--json"), "there is no verb 'miror'"),
        (("mirror", "--json", "--config", "nowhere.toml"), "--config nowhere.toml: No such file"),
    ],
)
def test_invalid_usage_with_json_is_an_object_on_stdout(
    shoal: Shoal, arguments: tuple[str, ...], problem: str
) -> None:
    run = shoal(*arguments)
    assert run.exit_code == 2
    (line,) = run.stdout.splitlines()
    said = json.loads(line)
    assert (said["type"], said["exit_code"]) == ("error", 2)
    assert said["error"].startswith(problem)
    assert run.stderr == f"shoal: {said['error']}\n"


def test_missing_properties_file_is_named(
    shoal: Shoal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ("mirror", "--from-config", "nowhere.properties", "--to", "b:1", "--topics", "a")
    run = shoal(*command)
    assert_one_sentence(run, 2, "--from-config nowhere.properties: No such file or directory")


def test_directory_as_properties_file_is_refused(
    shoal: Shoal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = shoal("mirror", *CLUSTERS, "--to-config", ".", "--topics", "a")
    assert_one_sentence(run, 2, "--to-config .: Is a directory")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"bootstrap.servers=\\u12", "not a properties file"),
        (b"bootstrap.servers=a", "bootstrap.servers: invalid address 'a'. Use HOST:PORT"),
        (b"client.id=me", "--from is required"),
        (b"bootstrap.servers=a:1\nisolation.level=dirty", "isolation.level=dirty is none of"),
        (
            b"bootstrap.servers=a:1\nrequest.timeout.ms=99999999999999999999999",
            "request.timeout.ms=99999999999999999999999 is not a number from 1 to 2147483647",
        ),
        (b"bootstrap.servers=a:1\ntransactional.id=t", "transactional.id=t is not supported. Remove it"),
    ],
)
def test_bad_properties_file_is_named(
    shoal: Shoal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "source.properties").write_bytes(content)
    command = ("mirror", "--from-config", "source.properties", "--to", "b:1", "--topics", "a")
    run = shoal(*command)
    assert_one_sentence(run, 2, part)


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_go_to_stdout(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([argument])
    out, err = capsys.readouterr()
    assert (ended.value.code, err) == (0, "")
    assert "shoal" in out
