r"""
``sasl.jaas.config`` as Java reads it.

One login module, a flag, options, a semicolon::

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="a\"b";

Java cuts it with its StreamTokenizer: values stand in double or single quotes with C's escapes, or
are words; comments are ``//`` and ``/* */``. (``org.apache.kafka.common.security.JaasConfig``)
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass, field

from ...errors import ConfigError

__all__ = ["LoginModule", "parse_jaas"]

_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\r\n]*|/\*.*?\*/)
    |"(?P<double>(?:[^"\\\r\n]|\\.)*)"
    |'(?P<single>(?:[^'\\\r\n]|\\.)*)'
    |(?P<sign>[=;])
    |(?P<word>[\w$.\-]+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_CONTROL = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A line of JAAS: the module's class and its options, which hold the secrets."""

    name: str
    options: dict[str, str] = field(repr=False)

    def option(self, name: str) -> str:
        """Return the value of an option; empty if it is not there."""
        return self.options.get(name, "").strip()

    def is_on(self, name: str) -> bool:
        """Return whether an option is true."""
        return self.option(name).lower() == "true"

    def refuse_others(self, known: Set[str], where: str) -> None:
        """
        Refuse options that are not known.

        Raises:
            ConfigError: There is one.

        """
        unknown = sorted(self.options.keys() - known)
        if unknown:
            raise ConfigError(f"{where}: sasl.jaas.config has the unknown option {unknown[0]}. Remove it")


def parse_jaas(text: str) -> LoginModule:
    """
    Read the one login module of a ``sasl.jaas.config``.

    Raises:
        ValueError: The text is malformed. The message contains nothing of it, since it holds a password.

    """
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != (";", True):
        raise ValueError("it does not end with a semicolon")
    if (";", True) in tokens[:-1]:
        raise ValueError("it has more than one login module, or a semicolon within a value without quotes")
    (name, is_sign), (flag, _) = tokens[:2]
    if is_sign or flag.lower() not in _FLAGS:
        raise ValueError("it does not begin with a login module's class and a flag such as 'required'")
    options = {}
    rest = tokens[2:-1]
    for first in range(0, len(rest), 3):
        triple = rest[first : first + 3]
        if len(triple) != 3 or triple[0][1] or triple[1] != ("=", True) or triple[2][1]:
            raise ValueError('after the flag, each option must be name="value"')
        options[triple[0][0]] = triple[2][0]
    return LoginModule(name, options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Return the tokens; True marks a sign."""
    tokens = []
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if not found:
            raise ValueError(
                "a quote is not closed, or a character stands outside quotes that has to be in them"
            )
        position = found.end()
        kind = found.lastgroup
        if kind in ("double", "single"):
            tokens.append((_unescaped(found[kind]), False))
        elif kind != "space":
            tokens.append((found[0], kind == "sign"))
    return tokens


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        escaped = found[1]
        return chr(int(escaped, 8)) if escaped[0] in "01234567" else _CONTROL.get(escaped, escaped)

    return _ESCAPE.sub(character, text)
