"""
The parser of the command line: argparse with three differences.

A mistake raises an error, which :func:`shoal.cli.main` reports like any other, with ``--json`` also on
stdout. An error about an unknown name suggests the nearest known one. The epilog of ``--help`` keeps its
lines, so that you can copy an example.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from ..declare import Declared
from ..errors import ConfigError
from ..nearest import did_you_mean

__all__ = [
    "Parser",
    "declared_of",
    "options_of",
    "verb_parser",
    "verbs_of",
]

_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")


class Parser(argparse.ArgumentParser):
    """A parser of the program or of one verb."""

    def __init__(self, *args: Any, **more: Any) -> None:
        # argparse makes the verbs' parsers of this class, but with its own defaults.
        more.setdefault("formatter_class", _Formatter)
        more.setdefault("allow_abbrev", False)
        super().__init__(*args, **more)

    def error(self, message: str) -> NoReturn:
        """Raise a ConfigError that points to ``--help``."""
        raise ConfigError(f"{message} (see {self.prog} --help)")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse unknown options first: argparse would report missing required ones instead."""
        required = [each for each in self._actions if each.required]
        for each in required:
            each.required = False
        try:
            found, rest = super().parse_known_args(args, namespace)
        finally:
            for each in required:
                each.required = True
        for word in rest:
            name, _, _ = word.partition("=")
            if len(name) > 1 and name.startswith("-") and not _NEGATIVE_NUMBER.fullmatch(name):
                known = [each for each in self._option_string_actions if each.startswith("--")]
                self.error(f"there is no option {name}{did_you_mean('--' + name.lstrip('-'), known)}")
        missing = [each for each in required if getattr(found, each.dest, None) is None]
        if missing:
            names = ("/".join(each.option_strings) or str(each.metavar) for each in missing)
            self.error(f"the following arguments are required: {', '.join(names)}")
        return found, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = None if action.choices is None else [str(each) for each in action.choices]
        if choices is None or value in choices or "declared" in vars(action):
            return  # the kind of a declared option refuses its values, wherever they come from
        near = did_you_mean(str(value), choices)
        if isinstance(action, argparse._SubParsersAction):
            raise argparse.ArgumentError(None, f"there is no verb {value!r}{near or _list_of(choices)}")
        raise argparse.ArgumentError(action, f"{value!r} is not one of {', '.join(choices)}{near}")


def options_of(parser: argparse.ArgumentParser) -> Sequence[argparse.Action]:
    """Return all options and arguments of a parser. No public attribute of argparse has them."""
    return parser._actions


def declared_of(parser: argparse.ArgumentParser) -> list[Declared]:
    """Return the options of a parser that are declared, in their order."""
    return [vars(action)["declared"] for action in options_of(parser) if "declared" in vars(action)]


def verbs_of(parser: argparse.ArgumentParser) -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """Return the parser of each verb, and the verb's line in the help of the program."""
    for action in options_of(parser):
        if isinstance(action, argparse._SubParsersAction):
            lines = {each.dest: each.help or "" for each in action._choices_actions}
            return {name: (verb, lines.get(name, "")) for name, verb in action.choices.items()}
    return {}


def verb_parser(parser: argparse.ArgumentParser, verb: str) -> argparse.ArgumentParser | None:
    """Return the parser of a verb; None if there is no such verb."""
    found = verbs_of(parser).get(verb)
    return found[0] if found else None


def _list_of(verbs: Iterable[str]) -> str:
    return f". The verbs are {', '.join(verbs)}"


class _Formatter(argparse.HelpFormatter):
    """Wraps paragraphs, but keeps indented ones as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            each if each.startswith(" ") else super(_Formatter, self)._fill_text(each, width, indent)
            for each in text.split("\n\n")
        )
