"""``shoal-broker`` and ``shoal-demo``: mistakes on their command lines, and their help."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable, Sequence

import pytest

from shoal.cli.parser import options_of
from shoal_broker.cli import broker, demo

Main = Callable[[Sequence[str]], int]


@pytest.mark.parametrize(
    ("main", "arguments", "sentence"),
    [
        (demo.main, ("--mb", "1"), "there is no option --mb (see shoal-demo --help)"),
        (broker.main, ("--listne", "a:1"), "there is no option --listne. Did you mean --listen?"),
        (broker.main, ("start",), "unrecognized arguments: start (see shoal-broker --help)"),
        (broker.main, ("--listen", "9092"), "--listen '9092' is not HOST:PORT"),
        (broker.main, ("--listen", "192.0.2.1:0"), "loopback"),
        (broker.main, ("--config", "num.partitions"), "--config 'num.partitions' is not KEY=VALUE"),
        (broker.main, ("--config", "nonsense=1"), "nonsense"),
    ],
)
def test_wrong_argument_is_one_sentence_and_one_object(
    main: Main, arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--json"]) == 2
    out, err = capsys.readouterr()
    assert err.count("\n") == 1
    assert sentence in err
    error = json.loads(out)
    program = "shoal-demo" if main is demo.main else "shoal-broker"
    assert (error["type"], error["exit_code"], err) == ("error", 2, f"{program}: {error['error']}\n")


@pytest.mark.parametrize("parser", [broker.make_parser(), demo.make_parser()], ids=lambda each: each.prog)
def test_each_option_has_a_help_text_and_the_example_parses(parser: argparse.ArgumentParser) -> None:
    assert [action.option_strings for action in options_of(parser) if not action.help] == []
    (example,) = [line for line in (parser.epilog or "").splitlines() if line.startswith(f"  {parser.prog} ")]
    parser.parse_args(shlex.split(example)[1:])
