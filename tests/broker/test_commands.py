"""``shoal-broker`` and ``shoal-demo``: mistakes on their command lines, and their help."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable, Sequence

import pytest

from shoal.cli.parser import options_of
from shoal_broker.cli import broker, demo
from tests.snapshots import Texts

Main = Callable[[Sequence[str]], int]


@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        (demo.main, ("--mb", "1")),
        (broker.main, ("--listne", "a:1")),
        (broker.main, ("start",)),
        (broker.main, ("--listen", "9092")),
        (broker.main, ("--listen", "192.0.2.1:0")),
        (broker.main, ("--config", "num.partitions")),
        (broker.main, ("--config", "nonsense=1")),
    ],
)
def test_wrong_argument_is_one_sentence_and_one_object(
    main: Main, arguments: tuple[str, ...], texts: Texts, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--json"]) == 2
    out, err = capsys.readouterr()
    assert err.count("\n") == 1
    texts(err)
    error = json.loads(out)
    program = "shoal-demo" if main is demo.main else "shoal-broker"
    assert (error["type"], error["exit_code"], err) == ("error", 2, f"{program}: {error['error']}\n")


@pytest.mark.parametrize("parser", [broker.make_parser(), demo.make_parser()], ids=lambda each: each.prog)
def test_each_option_has_a_help_text_and_the_example_parses(parser: argparse.ArgumentParser) -> None:
    assert [action.option_strings for action in options_of(parser) if not action.help] == []
    (example,) = [line for line in (parser.epilog or "").splitlines() if line.startswith(f"  {parser.prog} ")]
    parser.parse_args(shlex.split(example)[1:])
