"""
Write the manual page shoal(1) from what ``--help`` says.

    python docs/generate_manual.py build/man/man1/shoal.1

argparse-manpage formats the options. It leaves out the verbs' epilogs, which have the commands and examples,
and lets roff fill the lines of usages and examples.
"""

import importlib.metadata
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from argparse_manpage.manpage import Manpage

from shoal.cli import make_parser
from shoal.cli.parser import verbs_of

#: The requests of roff with which argparse-manpage begins a line.
_REQUESTS = (".TH ", ".SH", ".SS ", ".TP", ".RS", ".RE", ".B ")

_VERB = ".SS \\fBshoal "


def page() -> str:
    """Return the whole page."""
    # argparse wraps to the width of the terminal, and man indents by seven columns.
    os.environ["COLUMNS"] = "73"
    parser = make_parser()
    epilog, parser.epilog = parser.epilog, None
    data = {
        "project_name": "shoal",
        "version": importlib.metadata.version("shoal"),
        "description": "mirror Kafka topics by whole record batches",
        "manual_title": "shoal manual",
    }
    formatted = str(Manpage(parser, format="single-commands-section", _data=data))
    epilogs = {name: verb.epilog for name, (verb, _) in verbs_of(parser).items()}
    lines = [*_lines(formatted, epilogs), ".SH EXAMPLES", *_epilog(epilog)]
    return "\n".join(lines) + "\n"


def _lines(formatted: str, epilogs: dict[str, str | None]) -> Iterator[str]:
    """Yield the lines of argparse-manpage, with literal usages, and with the epilogs at the verbs' ends."""
    verb = ""
    is_usage = False
    for line in formatted.splitlines():
        if line.startswith(_VERB):
            yield from _epilog(epilogs.get(verb))
            verb = line.removeprefix(_VERB).removesuffix("\\fR").replace("\\-", "-")
        if line.startswith("usage: "):
            is_usage = True
            yield ".nf"
        elif is_usage and not line.strip():
            is_usage = False
            yield ".fi"
        yield line if line.startswith(_REQUESTS) else _shown(line)
    yield from _epilog(epilogs.get(verb))


def _epilog(text: str | None) -> Iterator[str]:
    """Yield the paragraphs of an epilog; indented ones keep their lines, as in ``--help``."""
    for paragraph in (text or "").split("\n\n") if text else ():
        escaped = [_shown(each.replace("\\", "\\e").replace("-", "\\-")) for each in paragraph.split("\n")]
        is_literal = paragraph.startswith(" ")
        yield ".PP"
        yield from (".nf", *escaped, ".fi") if is_literal else escaped


def _shown(line: str) -> str:
    """Return a line that roff does not take for a request."""
    return f"\\&{line}" if line.startswith((".", "'")) else line


if __name__ == "__main__":
    (target,) = sys.argv[1:]
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(target).write_text(page(), encoding="utf-8")
