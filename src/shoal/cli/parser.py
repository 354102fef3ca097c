"""
The parser of the command line: argparse with three differences.

A mistake raises an error, which :func:`shoal.cli.main` reports like any other, with ``--json`` also on
stdout. An error about an unknown name suggests the nearest known one. The epilog of ``--help`` keeps its
lines, so that you can copy an example.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from ..declare import Declared
from ..errors import ConfigError
from ..nearest import did_you_mean

__all__ = [
    "Parser",
    "declared_of",
    "no_end_time",
    "options_of",
    "verb_parser",
    "verbs_of",
]

#: Names that other programs give an end time.
_END_TIMES = frozenset(
    {"until", "end", "end-at", "end-time", "stop-at", "stop-time", "to-time", "to-timestamp"}
)

_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")


class Parser(argparse.ArgumentParser):
    """A parser of the program or of one verb."""

    def __init__(self, *args: Any, **more: Any) -> None:
        # argparse makes the verbs' parsers of this class, but without this formatter.
        more.setdefault("formatter_class", _Formatter)
        super().__init__(*args, **more)

    def error(self, message: str) -> NoReturn:
        """Raise a ConfigError that points to ``--help``."""
        raise ConfigError(f"{message} (see {self.prog} --help)")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse unknown options first: argparse would report missing required options instead."""
        self._refuse_unknown(args or ())
        return super().parse_known_args(args, namespace)

    def _refuse_unknown(self, args: Sequence[str]) -> None:
        known = [name for name in self._option_string_actions if name.startswith("--")]
        for option in self._unknown_options(args):
            name = option.lstrip("-")
            meant = no_end_time(name, known) or did_you_mean(f"--{name}", known)
            self.error(f"there is no option {option}{meant}")

    def _unknown_options(self, args: Sequence[str]) -> Iterator[str]:
        takes_value = False
        for each in args:
            name, equals, _ = each.partition("=")
            if each == "--" or (self._subparsers is not None and not each.startswith("-")):
                return  # the rest are no options, or the verb's
            action = self._option_string_actions.get(name)
            if action is not None:
                takes_value = action.nargs is None and not equals
                continue
            looks_like_option = len(each) > 1 and each.startswith("-") and " " not in each
            # If a value is missing, argparse reports that.
            if looks_like_option and not takes_value and not _NEGATIVE_NUMBER.fullmatch(each):
                yield name
            takes_value = False

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = None if action.choices is None else [str(each) for each in action.choices]
        if choices is None or value in choices:
            return
        near = did_you_mean(str(value), choices)
        if isinstance(action, argparse._SubParsersAction):
            raise argparse.ArgumentError(None, f"there is no verb {value!r}{near or _list_of(choices)}")
        raise argparse.ArgumentError(action, f"{value!r} is not one of {', '.join(choices)}{near}")


def no_end_time(name: str, known: Iterable[str]) -> str:
    """Return the rest of a sentence about an unknown option that means an end time; empty for others."""
    if name not in _END_TIMES or not {"once", "--once"} & set(known):
        return ""
    return ": a mirror has no end time yet. --once ends at the present end of each partition"


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
