"""
The command line: ``shoal VERB``.

A verb parses, calls and prints; each is a module here, with ``add_parser`` and
``run``. What was asked for goes to stdout, everything else to stderr.

Exit codes: 0 done; 1 failed, also where any partition was stopped; 2 usage or
configuration; 3 (``verify``) could not compare; 4 (``mirror``) done, but after
incidents that its options let it go on from.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ..errors import ConfigError, ShoalError
from ..exit_codes import EXIT_USAGE
from . import broker, demo, gateway, mirror, mirror_maker, verify
from .config_file import with_config_file
from .report import first_line, print_json, say

__all__ = ["main", "make_parser"]

VERBS = (mirror, mirror_maker, verify, demo, broker, gateway)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, where argparse would print the whole usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = _Parser(
        prog="shoal",
        description="Mirror Kafka topics by whole record batches, on Spark.",
        epilog="Exit codes: 0 done; 1 failed; 2 usage or configuration; 3 could not compare (verify); 4 "
        "done, but after incidents (mirror).",
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
        The exit code. An error is one sentence on stderr, and its traceback with ``--verbose``; with
        ``--json``, an object on stdout as well.

    """
    parser = make_parser()
    arguments = sys.argv[1:] if argv is None else list(argv)
    # Until they are parsed, this much of them is needed to say what is wrong.
    args = argparse.Namespace(json="--json" in arguments, verbose="--verbose" in arguments)
    try:
        arguments = with_config_file(parser, arguments)
    except ConfigError as error:
        return _fail(error, EXIT_USAGE, args)
    args = parser.parse_args(arguments)
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
    sentence = _sentence(error)
    foreign = not isinstance(error, ShoalError)
    say(f"{sentence}; --verbose shows where" if foreign and not args.verbose else sentence)
    if args.json:
        _print_last({"type": "error", "error": sentence, "exit_code": exit_code})
    return exit_code


def _sentence(error: Exception) -> str:
    """What went wrong; of others' texts (Java's come with their traces) only the first line."""
    text = first_line(str(error))
    return text if isinstance(error, ShoalError) else f"unexpected {type(error).__name__}: {text}"


def _print_last(values: Mapping[str, Any]) -> None:
    """Print an object that ends the output; where nobody reads it any more, that is no second error."""
    try:
        print_json(values)
    except BrokenPipeError:
        sys.stdout = None
