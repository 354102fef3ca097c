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

_WORD = r"[\w$.\-]++"
_SPACE = r"(?:\s|//[^\r\n]*|/\*.*?\*/)*+"
_QUOTED = r"""(?:"(?:[^"\\\r\n]|\\.)*+"|'(?:[^'\\\r\n]|\\.)*+')"""
_OPTION = rf"{_SPACE}({_WORD}){_SPACE}={_SPACE}({_QUOTED}|{_WORD})"
_OPTIONS = re.compile(_OPTION, re.DOTALL)
_FLAG = r"(?:required|requisite|sufficient|optional)(?![\w$.\-])"
_MODULE = re.compile(
    rf"{_SPACE}(?P<name>{_WORD}){_SPACE}{_FLAG}(?P<options>(?:{_OPTION})*){_SPACE};{_SPACE}",
    re.DOTALL | re.IGNORECASE,
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
    found = _MODULE.fullmatch(text)
    if not found:
        raise ValueError(
            'it must be CLASS required name="value" … and a semicolon, '
            "with quotes around values that are no words"
        )
    options = _OPTIONS.findall(found["options"])
    return LoginModule(found["name"], {name: _unescaped(value) for name, value in options})


def _unescaped(value: str) -> str:
    """Return the text of a value, which is a word or stands in quotes."""

    def character(found: re.Match[str]) -> str:
        escaped = found[1]
        return chr(int(escaped, 8)) if escaped[0] in "01234567" else _CONTROL.get(escaped, escaped)

    return _ESCAPE.sub(character, value[1:-1]) if value[0] in "\"'" else value
