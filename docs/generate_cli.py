"""
Write docs/cli.md, and the scripts of ``shoal completion``, from what ``--help`` says.

    python docs/generate_cli.py
"""

import argparse
import os
from pathlib import Path

import shtab

import shoal.cli
from shoal.cli import make_parser
from shoal.cli.completion import SHELLS
from shoal.cli.parser import options_of, verbs_of
from shoal.kinds import DIRECTORY, FILE
from shoal_broker.cli import broker, demo

PAGE = Path(__file__).parent / "cli.md"
SCRIPTS = Path(shoal.cli.__file__).parent / "completion_scripts"

#: The path of a control socket, which `shoal control` takes.
_PATH = "PATH"

_HEAD = """\
# The command line

This page is for operators: it has the exit codes and all options of each command.
`docs/generate_cli.py` writes it from the output of `--help`. `python -m shoal` is the same as `shoal`.

Shoal prints its results to stdout, and everything else to stderr.
With `--json`, stdout has only JSON objects, one per line.
An error is one line on stderr. With `--verbose`, shoal adds the traceback.
It then also says at the beginning how its inner loops run: native, or in Python.
With `--json`, the error is also the last object on stdout: `{"type": "error", "error": "…", "exit_code": 1}`.

| exit code | meaning |
|---|---|
| 0 | done; for `gateway`, `mirror-maker`, `shoal-broker` and `mirror` without `--once` also after a signal |
| 1 | failed; also if a partition was stopped, `verify` found something, or `groups` was refused |
| 2 | usage or configuration error; also `shoal` without a command, which prints its help on stderr |
| 3 | `verify` could not compare |
| 4 | `mirror` or `mirror-maker` is done, but with incidents that `--continue-after` allowed |

`shoal-broker` and `shoal-demo` have [a package of their own](install.md#the-demo-and-the-embedded-broker).
They print results and errors in the same way.

If you prefer a file to options, use `--config FILE`
([operating.md](operating.md#options-in-a-file-and-in-the-environment)).
"""


def page() -> str:
    """Return the whole page."""
    # argparse wraps to the width of the terminal.
    os.environ["COLUMNS"] = "100"
    parser = make_parser()
    sections = [("shoal", parser)] + [(f"shoal {name}", verb) for name, verb in verbs(parser).items()]
    sections += [(each.prog, each) for each in (broker.make_parser(), demo.make_parser())]
    return "\n".join([_HEAD, *(_section(title, each) for title, each in sections)])


def verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the verbs, by name."""
    (subparsers,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(subparsers.choices)


def script(shell: str) -> str:
    """Return the script by which a shell completes the command line."""
    parser = make_parser()
    for name, (verb, line) in verbs_of(parser).items():
        verb.description = line or name  # that of `shoal --help`, which is short
        for action in options_of(verb):
            metavar = action.metavar if isinstance(action.metavar, str) else ""
            # shtab reads this attribute of an action.
            if metavar.startswith((FILE.metavar, _PATH)):
                vars(action)["complete"] = shtab.FILE
            elif metavar.startswith(DIRECTORY.metavar):
                vars(action)["complete"] = shtab.DIRECTORY
            elif metavar and shell == "zsh":
                # shtab does not escape it, and behind a colon zsh expects a command.
                action.metavar = metavar.replace(":", r"\:")
    return shtab.complete(parser, shell).rstrip() + "\n"


def _section(title: str, parser: argparse.ArgumentParser) -> str:
    return f"## {title}\n\n```text\n{parser.format_help()}```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    for each in SHELLS:
        (SCRIPTS / f"shoal.{each}").write_text(script(each), encoding="utf-8")
