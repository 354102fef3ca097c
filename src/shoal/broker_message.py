"""Brokers' messages without the Java objects that some of them print."""

from __future__ import annotations

import re

__all__ = ["without_objects"]

#: The beginning of a Java object as text: ``Request(processor=2, …)``, or ``Session@528e2f25``.
_OBJECT = re.compile(r"[A-Za-z_$][\w.$]*(?:\(|@[0-9a-f]{4,}\b)")


def without_objects(message: str) -> str:
    """Return a message without objects, as ``Request is not authorized``."""
    kept, position = [], 0
    while found := _OBJECT.search(message, position):
        end = found.end() if "@" in found[0] else _closed(message, found.end())
        is_object = any(sign in message[found.start() : end] for sign in "=@")
        kept.append(message[position : found.start() if is_object else end])
        position = end
    return " ".join("".join([*kept, message[position:]]).split())


def _closed(message: str, start: int) -> int:
    """Return the position behind the parenthesis that closes one before ``start``, or the end."""
    depth = 1
    for position in range(start, len(message)):
        depth += (message[position] == "(") - (message[position] == ")")
        if not depth:
            return position + 1
    return len(message)
