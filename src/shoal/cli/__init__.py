"""
The command line: ``shoal VERB``.

A verb parses, calls and prints; each is a module here, with ``add_parser`` and
``run``. What was asked for goes to stdout, everything else to stderr.

Exit codes: 0 done; 1 failed, also where any partition was stopped; 2 usage or
configuration; 3 (``verify``) could not compare.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from ..errors import ConfigError, ShoalError
from . import broker, demo, mirror, verify
from .report import say

__all__ = ["EXIT_DONE", "EXIT_FAILED", "EXIT_USAGE", "main", "make_parser"]

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2

VERBS = (mirror, verify, demo, broker)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, where argparse would print the whole usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = _Parser(
        prog="shoal",
        description="Mirror Kafka topics by whole record batches, on Spark.",
        epilog="Exit codes: 0 done; 1 failed; 2 usage or configuration; 3 could not compare (verify).",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"shoal {importlib.metadata.version('shoal')}")
    verbs = parser.add_subparsers(title="verbs", dest="verb", metavar="VERB", required=True)
    for verb in VERBS:
        verb.add_parser(verbs)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run one verb.

    Args:
        argv: The arguments after the program's name; None for the process's own.

    Returns:
        The exit code. An error is one sentence on stderr, and its traceback with ``--verbose``.

    """
    args = make_parser().parse_args(argv)
    try:
        return int(args.run(args))
    except ConfigError as error:
        return _fail(error, EXIT_USAGE, args)
    except ShoalError as error:
        return _fail(error, args.exit_code_of_failure, args)
    except KeyboardInterrupt:
        # A verb that was at work handles signals itself: nothing had begun, or nothing is left to finish.
        return int(args.exit_code_of_interrupt)
    except BrokenPipeError:
        # Whoever read our output went away (| head); Python would complain again when it flushes.
        sys.stdout = None
        return int(args.exit_code_of_failure)
    except Exception as error:
        return _fail(error, args.exit_code_of_failure, args)


def _fail(error: Exception, exit_code: int, args: argparse.Namespace) -> int:
    if args.verbose:
        traceback.print_exception(error)
    if isinstance(error, ShoalError):
        say(str(error))
    else:
        hint = "" if args.verbose else "; --verbose shows where"
        say(f"unexpected {type(error).__name__}: {error}{hint}")
    return exit_code
