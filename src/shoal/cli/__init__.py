"""
The command line: ``shoal VERB``.

Each verb is a module with ``add_parser`` and ``run``: it parses, calls and prints. Results go to stdout,
everything else to stderr.

Exit codes: 0 done; 1 failed, also if a partition was stopped; 2 usage or configuration; 3 (``verify``) could
not compare; 4 (``mirror``) done, but after incidents that its options allowed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ConfigError, OptionError, ShoalError
from ..exit_codes import EXIT_USAGE
from ..printable import printable_lines
from .config_file import with_config_file
from .output import first_line, print_json, say, stamp_lines
from .parser import Parser, spelling

__all__ = ["main", "make_parser"]

#: In the order of the help. The module of a verb has its name, with underscores.
VERBS = (
    *("mirror", "control", "doctor", "mirror-maker", "verify", "inspect", "groups", "cutover"),
    *("gateway", "gateway-user", "completion"),
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
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"shoal {importlib.metadata.version('shoal')}")
    verbs = parser.add_subparsers(title="verbs", dest="verb", metavar="VERB", required=True)
    for each in (verb,) if verb in VERBS else VERBS:
        importlib.import_module(f".{each.replace('-', '_')}", __name__).add_parser(verbs)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run one verb.

    Args:
        argv: The arguments after the program's name; None for the process's own.

    Returns:
        The exit code. An error is one line on stderr, and its traceback with ``--verbose``; with
        ``--json``, an object on stdout as well.

    """
    try:
        return _main(sys.argv[1:] if argv is None else list(argv))
    finally:
        stamp_lines(is_service=False)


def _main(arguments: list[str]) -> int:
    parser = make_parser(arguments[0] if arguments else None)
    if not arguments:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    try:
        arguments = with_config_file(parser, arguments)
        args = parser.parse_args(arguments)
        args.spell = spelling(parser, args.verb)
    except ConfigError as error:
        # The arguments are not parsed, but these two decide how the error is printed.
        args = argparse.Namespace(json=_is_on("json", arguments), verbose=_is_on("verbose", arguments))
        return _fail(error, EXIT_USAGE, args)
    try:
        return int(args.run(args))
    except OptionError as error:
        spelled = ConfigError(error.spelled(args.spell)).with_traceback(error.__traceback__)
        return _fail(spelled, EXIT_USAGE, args)
    except ConfigError as error:
        return _fail(error, EXIT_USAGE, args)
    except ShoalError as error:
        return _fail(error, args.exit_code_of_failure, args)
    except KeyboardInterrupt:
        # A working verb handles signals itself, so nothing had begun, or nothing is left to finish.
        return _interrupted(args)
    except BrokenPipeError:
        # The reader of our output has gone (| head). Python would raise the error again when it flushes.
        sys.stdout = None
        return int(args.exit_code_of_failure)
    except Exception as error:
        return _fail(error, args.exit_code_of_failure, args)


def _is_on(option: str, arguments: Sequence[str]) -> bool:
    given = [each for each in arguments if each in (f"--{option}", f"--no-{option}")]
    return given[-1:] == [f"--{option}"]


def _fail(error: Exception, exit_code: int, args: argparse.Namespace) -> int:
    if args.verbose:
        print(printable_lines("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    sentence = _sentence(error)
    foreign = not isinstance(error, ShoalError)
    say(f"{sentence}. Use --verbose to see the traceback" if foreign and not args.verbose else sentence)
    if args.json:
        _print_last({"type": "error", "error": sentence, "exit_code": exit_code})
    return exit_code


def _interrupted(args: argparse.Namespace) -> int:
    exit_code = int(args.exit_code_of_interrupt)
    say("interrupted")
    if args.json and exit_code:
        _print_last({"type": "error", "error": "interrupted", "exit_code": exit_code})
    return exit_code


def _sentence(error: Exception) -> str:
    """Return the error's sentence. Errors of others (Java's have traces) keep only their first line."""
    text = first_line(str(error))
    return text if isinstance(error, ShoalError) else f"unexpected {type(error).__name__}: {text}"


def _print_last(values: Mapping[str, Any]) -> None:
    """Print the last object of the output. A reader that has gone is no second error."""
    try:
        print_json(values)
    except BrokenPipeError:
        sys.stdout = None
