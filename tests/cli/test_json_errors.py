"""With ``--json``, every verb prints an error as one object on stdout, and as one sentence on stderr."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.cli import main, make_parser
from shoal.cli.parser import options_of, verbs_of
from tests.sasl_broker import sasl_broker

#: The verbs that have ``--json``.
VERBS = [
    name
    for name, (verb, _) in verbs_of(make_parser()).items()
    if any("--json" in each.option_strings for each in options_of(verb))
]

SELECTED = ("--topics", "orders")
GROUPS = (*SELECTED, "--groups", ".*")

#: The further arguments of each verb that connects to clusters.
CLUSTER_VERBS = {
    "mirror": ("mirror", *SELECTED, "--dry-run"),
    "mirror-maker": ("mirror-maker", "--include", "orders"),
    "verify": ("verify", *SELECTED),
    "groups": ("groups", *GROUPS),
    "cutover": ("cutover", *GROUPS, "--rehearse"),
}

PROPERTIES = """
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="no";
group.id=mirror
"""


class Output:
    """The output of a verb."""

    def __init__(self, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
        self.exit_code = main([*arguments, "--json"])
        out, self.err = capsys.readouterr()
        (line,) = out.splitlines()
        self.object: dict[str, Any] = json.loads(line)


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Yield the address of a broker that refuses each login, and a properties file."""
    file = tmp_path / "client.properties"
    with sasl_broker(lambda token: None) as address:
        file.write_text(f"bootstrap.servers={address}\n{PROPERTIES}")
        file.chmod(0o600)
        yield address, str(file)


WRONG = [*((verb, "--no-such-option") for verb in VERBS), ("miror",), ("mirror", "--config", "nowhere.toml")]


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_usage_is_one_object(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(capsys, arguments)
    assert (output.exit_code, output.object["type"], output.object["exit_code"]) == (2, "error", 2)
    assert output.err == f"shoal: {output.object['error']}\n"


def assert_login_error(output: Output) -> None:
    assert (output.exit_code, output.object["type"], output.object["exit_code"]) == (2, "error", 2)
    assert "login of 'me'" in output.object["error"]
    assert output.err.endswith(f"shoal: {output.object['error']}\n")


@pytest.mark.parametrize("verb", CLUSTER_VERBS)
def test_refused_login_is_one_object(
    verb: str, refusing: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, file = refusing
    clusters = (
        ("--consumer.config", file, "--producer.config", file)
        if verb == "mirror-maker"
        else ("--from-config", file, "--to-config", file)
    )
    assert_login_error(Output(capsys, (*CLUSTER_VERBS[verb], *clusters)))


def test_login_that_refuses_an_inspection_is_one_object(
    refusing: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert_login_error(Output(capsys, ("inspect", "--from-config", refusing[1])))


def test_login_that_refuses_the_gateway_is_one_object(
    refusing: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    address, file = refusing
    upstream = ("--upstream", address, "--upstream-config", file)
    assert_login_error(Output(capsys, ("gateway", "--listen", "127.0.0.1:0", *upstream)))


@pytest.fixture
def unused_address() -> str:
    """An address without a server."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def assert_unreachable(output: Output, address: str, code: int = 1) -> None:
    assert (output.exit_code, output.object["type"], output.object["exit_code"]) == (code, "error", code)
    assert output.err.endswith(f"shoal: {output.object['error']}\n")
    assert address in output.object["error"]


#: Far less than the time for which later requests are retried.
at_once = pytest.mark.timeout(15)


@at_once
@pytest.mark.parametrize(("verb", "code"), [("mirror", 1), ("verify", 3), ("groups", 1), ("cutover", 1)])
def test_unreachable_broker_is_one_object_at_once(
    verb: str, code: int, capsys: pytest.CaptureFixture[str], unused_address: str
) -> None:
    clusters = ("--from", unused_address, "--to", unused_address)
    assert_unreachable(Output(capsys, (*CLUSTER_VERBS[verb], *clusters)), unused_address, code)


@at_once
def test_unreachable_broker_ends_an_inspection_at_once(
    capsys: pytest.CaptureFixture[str], unused_address: str
) -> None:
    assert_unreachable(Output(capsys, ("inspect", "--from", unused_address)), unused_address)


def test_socket_without_a_mirror_is_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(capsys, ("control", str(tmp_path / "socket"), "status"))
    assert (output.exit_code, output.object["type"], output.object["exit_code"]) == (1, "error", 1)
    assert output.err == f"shoal: {output.object['error']}\n"
