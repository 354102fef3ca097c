"""
Text from a cluster, made safe for terminals, logs, pages and metrics.

A hostile cluster can put escape sequences into names of topics, hosts and groups and into error messages:
they would clear an operator's screen, set its title, hide and forge lines of a log, or read as another name.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Mapping
from typing import Any

__all__ = ["logger", "printable", "printable_lines", "printable_values"]

#: Format characters that reverse the direction of text, so that it reads as another one; and line separators.
_MISLEADING = "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


_ESCAPES = {
    ord(each): _escape(each)
    for each in [*map(chr, range(0xA0)), *_MISLEADING]
    if unicodedata.category(each) == "Cc" or each in _MISLEADING
}
_ESCAPES_IN_LINES = {code: escape for code, escape in _ESCAPES.items() if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    r"""Return one line of text with control characters as escapes such as ``\x1b``."""
    return text.translate(_ESCAPES)


def printable_lines(text: str) -> str:
    """Return the same of several lines, such as those of a traceback; line ends and tabs stay."""
    return text.translate(_ESCAPES_IN_LINES)


def printable_values(value: Any) -> Any:
    """Return a value for JSON with all text in it, names of fields included, as :func:`printable` has it."""
    match value:
        case str():
            return printable(value)
        case Mapping():
            return {printable_values(name): printable_values(each) for name, each in value.items()}
        case list() | tuple():
            return [printable_values(each) for each in value]
    return value


def logger(name: str) -> logging.Logger:
    """Return the logger of this name; each of its records is made printable, for whichever handler."""
    found = logging.getLogger(name)
    if _make_printable not in found.filters:
        found.addFilter(_make_printable)
    return found


def _make_printable(record: logging.LogRecord) -> bool:
    record.msg, record.args = printable(record.getMessage()), ()
    if record.exc_info:
        record.exc_text = printable_lines(logging.Formatter().formatException(record.exc_info))
    return True
