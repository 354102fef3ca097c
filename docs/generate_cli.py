"""
Write docs/cli.md from what ``--help`` says.

    python docs/generate_cli.py
"""

import argparse
import os
from pathlib import Path

from shoal.cli import make_parser

PAGE = Path(__file__).parent / "cli.md"

_HEAD = r"""# The command line

This page is made by `docs/generate_cli.py` from what `--help` says; `python -m shoal` is the same as `shoal`.

What was asked for goes to stdout, everything else to stderr.
With `--json`, stdout has JSON objects only, one a line.
An error is one sentence on stderr; `--verbose` adds the traceback.
With `--json` it is also the last object on stdout: `{"type": "error", "error": "…", "exit_code": 1}`.

| exit code | |
|---|---|
| 0 | done; for `mirror` without `--once` also after SIGINT or SIGTERM |
| 1 | failed; also where any partition was stopped, or where `verify` found a difference |
| 2 | usage or configuration |
| 3 | `verify` could not compare |
| 4 | `mirror` is done, but after incidents that an `--on-…` option let it go on from |

## A mirror in a file

`shoal mirror --config orders.toml` reads its options from a TOML file, for people who keep mirrors in version control.
Each stands under its own name, without the dashes; all of them can be given there but `--config` and `--help`.

```toml
from-config = "source.properties"      # relative to this file
to-config = "/etc/shoal/destination.properties"
topics = ["orders", 'payments\..*']     # or "orders,payments\\..*"
rename = '(.*)=west.\1'                 # single quotes: backslashes are meant
slice = 10
fetch-buffer-bytes = "32m"
on-source-retention = "continue"
metrics = "127.0.0.1:9100"

[conf]
spark.executor.memory = "2g"
```

| an option that takes | is in the file |
|---|---|
| nothing | `true` or `false` |
| a number | a number |
| a size | a string as `"16m"`, or a number of bytes |
| a time (`--start`) | a string, a number of milliseconds, or a time of TOML's: `2026-01-31T12:00:00Z` |
| a list with commas | a string, or an array of strings |
| `KEY=VALUE`, again and again (`--conf`) | a table |
| a file or a directory | a string; a relative path is relative to the directory of the file that says it, not to where `shoal` was started |
| anything else | a string |

The command line wins over the file: an option there replaces the one in the file, `--conf` setting by setting.
What is `true` in the file is undone by `--no-` before the option's name: `--no-once`, `--no-json`.
A key that is no option, and a value of another type, are refused with exit code 2.
Secrets belong into the `.properties` files, which need not be in version control.
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
