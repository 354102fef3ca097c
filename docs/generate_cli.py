"""
Write docs/cli.md from what ``--help`` says.

    python docs/generate_cli.py
"""

import argparse
import os
from pathlib import Path

from shoal.cli import make_parser

PAGE = Path(__file__).parent / "cli.md"

_HEAD = """\
# The command line

This page is made by `docs/generate_cli.py` from what `--help` says; `python -m shoal` is the same as `shoal`.

What was asked for goes to stdout, everything else to stderr.
With `--json`, stdout has JSON objects only, one a line.
An error is one sentence on stderr; `--verbose` adds the traceback.
With `--json` it is also the last object on stdout: `{"type": "error", "error": "…", "exit_code": 1}`.

| exit code | |
|---|---|
| 0 | done; for `broker`, `gateway`, `mirror-maker` and `mirror` without `--once` also after a signal |
| 1 | failed; also where any partition was stopped, or where `verify` found a difference |
| 2 | usage or configuration; also `shoal` without a verb, which prints its help on stderr |
| 3 | `verify` could not compare |
| 4 | `mirror` or `mirror-maker` is done, but after incidents that an option let it go on from |

`shoal mirror --config FILE` takes all of its options from a file: [config-file.md](config-file.md).
"""


def page() -> str:
    """Return the whole page."""
    # argparse wraps to the width of the terminal.
    os.environ["COLUMNS"] = "100"
    parser = make_parser()
    sections = [("shoal", parser)] + [(f"shoal {name}", verb) for name, verb in verbs(parser).items()]
    return "\n".join([_HEAD, *(_section(title, each) for title, each in sections)])


def verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the verbs, by name."""
    (subparsers,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(subparsers.choices)


def _section(title: str, parser: argparse.ArgumentParser) -> str:
    return f"## {title}\n\n```text\n{parser.format_help()}```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
