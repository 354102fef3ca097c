"""
A program of the command line: ``shoal``, or a command of another distribution that is built on it.

Results go to stdout, everything else to stderr, also the one line of an error.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ConfigError, ShoalError
from ..exit_codes import EXIT_USAGE
from ..printable import printable_lines
from .layers import with_lower_layers
from .output import first_line, print_json, say, stamp_lines, warn

__all__ = ["run_program"]


def run_program(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    """
    Parse the arguments and call the function ``run`` that the parser sets for them.

    Args:
        parser: The program's parser. Each of its commands has the options of ``add_output_options``.
        arguments: The arguments after the program's name.

    Returns:
        The exit code. An error is one line on stderr; with ``--json``, an object on stdout as well.
        ``--verbose`` adds the traceback, and says at the beginning how the inner loops run.

    """
    try:
        return _run(parser, list(arguments))
    finally:
        stamp_lines(is_service=False)


def _run(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    try:
        arguments, unknown = with_lower_layers(parser, arguments)
        for sentence in unknown:
            warn(sentence)  # first: it may be why an option is missing
        args = parser.parse_args(arguments)
        args.program = parser.prog
        if args.verbose:
            from ..native import NATIVE  # imported here: it loads the module

            say(f"inner loops: {'Python' if NATIVE is None else 'native'}", args.program)
    except ConfigError as error:
        # The arguments are not parsed, but these two decide how the error is printed.
        args = argparse.Namespace(json=_is_on("json", arguments), verbose=_is_on("verbose", arguments))
        args.program = parser.prog
        return _fail(error, EXIT_USAGE, args)
    try:
        return int(args.run(args))
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
    hint = ". Use --verbose to see the traceback" if foreign and not args.verbose else ""
    say(sentence + hint, args.program)
    if args.json:
        _print_last({"type": "error", "error": sentence, "exit_code": exit_code})
    return exit_code


def _interrupted(args: argparse.Namespace) -> int:
    exit_code = int(args.exit_code_of_interrupt)
    say("interrupted", args.program)
    if args.json and exit_code:
        _print_last({"type": "error", "error": "interrupted", "exit_code": exit_code})
    return exit_code


def _sentence(error: Exception) -> str:
    """Return the error's sentence. Errors of others (Java's have traces) keep only their first line."""
    text = first_line(str(error))
    return text if isinstance(error, ShoalError) else f"unexpected {type(error).__name__}: {text}"


def _print_last(values: Mapping[str, Any]) -> None:
    """Print the last object of the output. A reader that has gone, or a full disk, is no second error."""
    try:
        print_json(values)
    except OSError:
        sys.stdout = None
