"""
Options from a TOML file and from environment variables, below those of the command line.

The command line wins over the environment, and the environment over the file of ``--config``. Both become
arguments before those of the command line, which the verb's parser reads as one list. So an option means the
same in all three.

| option | in the file | in the environment |
|---|---|---|
| without a value | ``true`` or ``false``; ``--no-OPTION`` on the command line wins over ``true`` | the same |
| names, separated by commas | a string, or an array of strings | separated by commas |
| repeated ``KEY=VALUE`` | a table | separated by blanks |
| a file or a directory | a string; a relative path is relative to the TOML file | relative to the process |
| anything else | a string, a number or a time | its text |

The kind of an option refuses a value, wherever it comes from.
"""

from __future__ import annotations

import argparse
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from ..declare import Declared
from ..errors import ConfigError
from ..nearest import did_you_mean
from .parser import declared_of, verb_parser

__all__ = ["variable", "with_lower_layers"]

_CONFIG = "config"

#: Kubernetes gives each container the address of each service of its namespace: of one that is called
#: shoal-mirror, SHOAL_MIRROR_SERVICE_HOST, SHOAL_MIRROR_PORT, SHOAL_MIRROR_PORT_9100_TCP_ADDR and others.
_OF_KUBERNETES = re.compile(
    r"(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


def variable(verb: str, name: str) -> str:
    """Return the environment variable of a verb's option."""
    return re.sub(r"[-.]", "_", f"shoal-{verb}-{name}").upper()


def with_lower_layers(
    parser: argparse.ArgumentParser, arguments: Sequence[str], environ: Mapping[str, str] = os.environ
) -> tuple[list[str], list[str]]:
    """
    Return the arguments, after those of the file and of the environment; and warnings of unknown variables.

    Args:
        parser: The parser of the whole command line.
        arguments: The verb and its arguments. The parser reports their mistakes.

    Raises:
        ConfigError: The file cannot be read, or has an unknown option; or a value is of the wrong kind.

    """
    verb = verb_parser(parser, arguments[0]) if arguments else None
    if verb is None:
        return list(arguments), []
    options = {each.name: each for each in declared_of(verb)}
    of_environment, unknown = _from_environment(arguments[0], options, environ)
    file = _file_of([*of_environment, *arguments[1:]]) if _CONFIG in options else None
    of_file = [] if file is None else list(_from_file(options, file))
    return [arguments[0], *of_file, *of_environment, *arguments[1:]], unknown


def _file_of(arguments: Sequence[str]) -> str | None:
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument(f"--{_CONFIG}", nargs="?")
    found: str | None = finder.parse_known_args(list(arguments))[0].config
    return found


# The environment


def _from_environment(
    verb: str, options: Mapping[str, Declared], environ: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    known = {variable(verb, name): each for name, each in options.items()}
    prefix = variable(verb, "")
    arguments, unknown = [], []
    for name, value in environ.items():
        if name in known:
            arguments += _of_variable(known[name], name, value)
        elif name.startswith(prefix) and not _is_of_another(name, verb):
            unknown.append(f"{name} has no effect: there is no such option{did_you_mean(name, known)}")
    return arguments, unknown


def _is_of_another(name: str, verb: str) -> bool:
    """Whether a variable is Kubernetes' own, or of a verb whose name begins with this verb's."""
    return bool(_OF_KUBERNETES.fullmatch(name.removeprefix(variable(verb, "")))) or (
        verb == "mirror" and name.startswith(variable("mirror-maker", ""))
    )


def _of_variable(option: Declared, name: str, value: str) -> list[str]:
    if option.kind.is_table:
        return [f"{option.option}={each}" for each in value.split()]
    return [_argument(option, name, value)]


def _argument(option: Declared, where: str, text: str) -> str:
    """Return an option with its value, as the command line has it."""
    if not option.kind.is_flag:
        return f"{option.option}={text}"
    return option.option if option.kind.read(where, text) else f"--no-{option.name}"


# The file


def _from_file(options: Mapping[str, Declared], file: str) -> Iterator[str]:
    """Yield the arguments that mean the same as the file."""
    for key, value in _read(file).items():
        if key in (_CONFIG, "help"):
            raise ConfigError(f"--{_CONFIG} {file}: {key} is for the command line only")
        if key not in options:
            raise ConfigError(f"--{_CONFIG} {file}: {_unknown(key, value, options)}")
        yield from _of_key(options[key], f"--{_CONFIG} {file}: {key}", value, Path(file).parent)


def _read(file: str) -> dict[str, Any]:
    try:
        with Path(file).open("rb") as stream:
            return tomllib.load(stream)
    except OSError as error:
        raise ConfigError(f"--{_CONFIG} {file}: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"--{_CONFIG} {file}: not a TOML file: {error}") from None


def _unknown(key: str, value: object, known: Iterable[str]) -> str:
    name = key.lstrip("-").replace("_", "-")
    near = did_you_mean(name, known)
    if isinstance(value, dict) and not near:
        return (
            f"there is no section [{key}]. One file describes one mirror. Remove the line [{key}] and "
            "write its options at the top of the file"
        )
    return f"there is no option {key}{near}"


def _of_key(option: Declared, where: str, value: object, directory: Path) -> Iterator[str]:
    kind = option.kind
    if kind.is_table:
        settings = list(_pairs(where, value))
        kind.read(where, settings)
        yield from (f"{option.option}={each}" for each in settings)
        return
    parts = value if kind.is_list and isinstance(value, list) else [value]
    text = ",".join(_text(where, each) for each in parts)
    kind.read(where, text)
    yield _argument(option, where, str(directory / text) if kind.is_path else text)


def _pairs(where: str, value: object, prefix: str = "") -> Iterator[str]:
    """Yield the pairs of a table as ``KEY=VALUE``. In TOML, ``a.b`` without quotes is a table in a table."""
    if not isinstance(value, dict):
        raise ConfigError(f"{where} is a table of names and values, not {value!r}")
    for key, each in value.items():
        if isinstance(each, dict):
            yield from _pairs(where, each, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={_text(where, each)}"


def _text(where: str, value: object) -> str:
    """Return a value of TOML as the command line has it."""
    if isinstance(value, dict | list):
        raise ConfigError(f"{where} is one value, not {value}")
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) else str(value)
