"""
``--config FILE``: a verb's options in a TOML file, which you can keep in version control.

Each key is the name of an option without its dashes. The same parser reads the file's options first, and
then the command line. So the command line wins, and an option means the same in both.

| option | in the file |
|---|---|
| without a value | ``true`` or ``false``; ``--no-OPTION`` on the command line wins over ``true`` |
| a number | a number |
| a size, a time | a string, or a number; a time also as TOML's own |
| names, separated by commas | a string, or an array of strings |
| repeated ``KEY=VALUE`` | a table |
| a file or a directory | a string; a relative path is relative to the TOML file |
| anything else | a string |
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..nearest import did_you_mean
from .parser import no_end_time, options_of, verb_parser

__all__ = ["DIRECTORIES", "FILES", "add_config_option", "with_config_file"]

_OPTION = "--config"
_DESTINATION = "config_file"

#: The metavars that show the kind of an option's value.
_BYTES = "BYTES"
_TIMESTAMP = "TIMESTAMP"
FILES = "FILE"
DIRECTORIES = "DIR"
_LIST = "[,"


def add_config_option(parser: argparse.ArgumentParser) -> None:
    """
    Add ``--config``, and ``--no-OPTION`` for each option without a value.

    Args:
        parser: The verb's parser, with all other options.

    """
    parser.add_argument(
        _OPTION,
        dest=_DESTINATION,
        metavar="FILE",
        help="read options from a TOML file, each under its own name without the dashes. The command line "
        "wins, and --no-OPTION wins over a true in the file",
    )
    for action in list(options_of(parser)):
        if isinstance(action, argparse._StoreTrueAction):
            parser.add_argument(
                f"--no-{_key(action)}", dest=action.dest, action="store_false", help=argparse.SUPPRESS
            )


def with_config_file(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> list[str]:
    """
    Return the arguments, after those of the file that ``--config`` names.

    Args:
        parser: The parser of the whole command line.
        arguments: The verb and its arguments. The parser reports their mistakes.

    Raises:
        ConfigError: The file cannot be read, or has an unknown option or a wrong value.

    """
    verb = verb_parser(parser, arguments[0]) if arguments else None
    if verb is None or not any(action.dest == _DESTINATION for action in options_of(verb)):
        return list(arguments)
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument(_OPTION, nargs="?")
    file = finder.parse_known_args(list(arguments[1:]))[0].config
    if file is None:
        return list(arguments)
    return [arguments[0], *_arguments(verb, file), *arguments[1:]]


def _arguments(verb: argparse.ArgumentParser, file: str) -> Iterator[str]:
    """Yield the arguments that mean the same as the file."""
    actions = {_key(action): action for action in options_of(verb) if action.help != argparse.SUPPRESS}
    for key, value in _read(file).items():
        if key in (_OPTION.lstrip("-"), "help"):
            raise ConfigError(f"{_OPTION} {file}: {key} is for the command line only")
        if key not in actions:
            raise ConfigError(f"{_OPTION} {file}: {_unknown(key, value, actions)}")
        try:
            yield from _options(actions[key], value, Path(file).parent)
        except _WrongType as error:
            raise ConfigError(f"{_OPTION} {file}: {key} is {error}, not {_shown(value)}") from None


def _read(file: str) -> dict[str, Any]:
    try:
        with Path(file).open("rb") as stream:
            return tomllib.load(stream)
    except OSError as error:
        raise ConfigError(f"{_OPTION} {file}: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"{_OPTION} {file}: not a TOML file: {error}") from None


def _key(action: argparse.Action) -> str:
    """Return the name of the option in the file."""
    return action.option_strings[-1].lstrip("-")


def _unknown(key: str, value: object, known: Mapping[str, object]) -> str:
    name = key.lstrip("-").replace("_", "-")
    near = no_end_time(name, known) or did_you_mean(name, known)
    if isinstance(value, dict) and not near:
        return (
            f"there is no section [{key}]. One file describes one mirror. Remove the line [{key}] and "
            "write its options at the top of the file"
        )
    return f"there is no option {key}{near}"


class _WrongType(Exception):
    """The value of an option has the wrong type. The message names the right one."""


def _options(action: argparse.Action, value: object, directory: Path) -> Iterator[str]:
    option = f"--{_key(action)}"
    if isinstance(action, argparse._StoreTrueAction):
        if not isinstance(value, bool):
            raise _WrongType("true or false")
        if value:
            yield option
    elif isinstance(action, argparse._AppendAction):
        yield from (f"{option}={key}={text}" for key, text in _pairs(value))
    else:
        yield f"{option}={_text(action, value, directory)}"


def _pairs(value: object, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the pairs of a table. In TOML, ``a.b`` without quotes is a table in a table."""
    if not isinstance(value, dict):
        raise _WrongType("a table of names and values")
    for key, each in value.items():
        name = f"{prefix}{key}"
        if isinstance(each, dict):
            yield from _pairs(each, f"{name}.")
        elif isinstance(each, bool):
            yield name, str(each).lower()
        elif isinstance(each, (str, int, float)):
            yield name, str(each)
        else:
            raise _WrongType("a table of names and values")


def _text(action: argparse.Action, value: object, directory: Path) -> str:
    """Return the value as the command line has it."""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if action.choices is not None:
        if value not in action.choices:
            raise _WrongType(f"one of {', '.join(map(str, action.choices))}")
        return str(value)
    if _LIST in metavar and isinstance(value, list):
        return ",".join(_string(each, "a string or an array of strings") for each in value)
    for marks, types, expected in _OTHERS:
        if marks(action, metavar):
            if isinstance(value, bool) or not isinstance(value, types):
                raise _WrongType(expected)
            return value.isoformat() if isinstance(value, date) else str(value)
    text = _string(value, "a string or an array of strings" if _LIST in metavar else "a string")
    return str(directory / text) if metavar.startswith((FILES, DIRECTORIES)) and text else text


def _string(value: object, expected: str) -> str:
    if not isinstance(value, str):
        raise _WrongType(expected)
    return value


#: Options whose value may be no string: a test of the option, the types of the value in TOML, and their name.
_OTHERS: tuple[tuple[Callable[[argparse.Action, str], bool], tuple[type, ...], str], ...] = (
    (lambda action, _: action.type is int, (int,), "a whole number"),
    (lambda action, _: action.type is float, (int, float), "a number"),
    (lambda _, metavar: metavar == _BYTES, (str, int), 'a number of bytes, or a string as "16m"'),
    (
        lambda _, metavar: metavar.endswith(_TIMESTAMP),
        (str, int, date, datetime),
        "a string, a time or a number of milliseconds",
    ),
)


def _shown(value: object) -> str:
    return (
        f'"{value}"'
        if isinstance(value, str)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )
