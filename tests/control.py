"""Commands to a mirror, written as on the command line of ``shoal control``."""

from __future__ import annotations

from typing import Any

from shoal.cli.control import ask_mirror
from shoal.mirroring.driver.steering import COMMANDS

__all__ = ["parsed", "send"]


def parsed(line: str) -> tuple[str, dict[str, str]]:
    """Return a command and its arguments, by name."""
    name, *words = line.split()
    return name, dict(zip(COMMANDS[name].arguments, words, strict=False))


def send(path: str, line: str) -> dict[str, Any]:
    """Send a command to the mirror behind a control socket."""
    return ask_mirror(path, *parsed(line))
