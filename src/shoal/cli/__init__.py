"""
The command line: ``shoal VERB``.

Each verb is a module: ``add_parser`` declares its command line, and ``run`` calls and prints. Results go to
stdout, everything else to stderr.

Exit codes: 0 done; 1 failed, also if a partition was stopped; 2 usage or configuration; 3 (``verify``) could
not compare; 4 (``mirror``) done, but after incidents that its options allowed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import sys
from collections.abc import Sequence

from ..exit_codes import EXIT_USAGE
from .parser import Parser
from .program import run_program

__all__ = ["main", "make_parser"]

#: In the order of the help. The module of a verb has its name, with underscores.
VERBS = (
    *("mirror", "control", "mirror-maker", "verify", "inspect", "groups", "cutover"),
    *("gateway", "completion"),
)


def make_parser(verb: str | None = None) -> argparse.ArgumentParser:
    """
    Return the parser of the command line.

    Args:
        verb: The only verb to parse, which saves the import of the others; None, or a word that is no verb,
            for all of them.

    """
    parser = Parser(
        prog="shoal",
        description="Mirror Kafka topics by whole record batches, on Spark.",
        epilog="See what a mirror would do, let it copy, and compare the copies:\n\n"
        "  shoal mirror --from old:9092 --to new:9092 --topics 'orders.*' --dry-run\n"
        "  shoal mirror --from old:9092 --to new:9092 --topics 'orders.*' --once\n"
        "  shoal verify --from old:9092 --to new:9092 --topics 'orders.*'\n\n"
        "Exit codes: 0 done; 1 failed; 2 usage or configuration; 3 could not compare (verify); 4 "
        "done, but after incidents (mirror). Without a verb, shoal prints this help on stderr and exits "
        "with code 2.",
    )
    parser.add_argument("--version", action="version", version=f"shoal {importlib.metadata.version('shoal')}")
    verbs = parser.add_subparsers(title="verbs", dest="verb", metavar="VERB", required=True)
    for each in (verb,) if verb in VERBS else VERBS:
        module = importlib.import_module(f".{each.replace('-', '_')}", __name__)
        module.add_parser(verbs)
        verbs.choices[each].set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run one verb.

    Args:
        argv: The arguments after the program's name; None for the process's own.

    Returns:
        The exit code, as of :func:`.program.run_program`.

    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    parser = make_parser(arguments[0] if arguments else None)
    if not arguments:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    return run_program(parser, arguments)
