"""Classes that users name on the command line, as ``package.module:Class``."""

from __future__ import annotations

import importlib
from typing import TypeVar

from ..errors import ConfigError

__all__ = ["load"]

T = TypeVar("T")


def load(option: str, name: str, args: str | None, kind: type[T], *, takes_init: bool = False) -> T:
    """
    Make an object of a class, with the text of its arguments if there is one.

    Args:
        option: The option that errors name, such as ``--message.handler``.
        name: ``package.module:Class``.
        args: The only argument of the class; None for no argument.
        kind: The base class that the class must have.
        takes_init: Whether a class with a method ``init`` has no arguments, and receives the text, or None,
            by ``init(args)``, as in KIP-3.

    Raises:
        ConfigError: There is no such class, it has another base class, or its object cannot be made.

    """
    module, colon, class_name = name.partition(":")
    if not (module and colon and class_name):
        raise ConfigError(f"{option} {name}: not package.module:Class")
    try:
        found = getattr(importlib.import_module(module), class_name, None)
    except ImportError as error:
        raise ConfigError(
            f"{option} {name}: {error}; the directory of a module that is not installed goes into PYTHONPATH"
        ) from error
    except Exception as error:
        raise ConfigError(f"{option} {name}: importing it failed: {_said(error)}") from error
    if not (isinstance(found, type) and issubclass(found, kind)):
        what = "there is no such class" if found is None else f"it is not a subclass of {kind.__name__}"
        raise ConfigError(f"{option} {name}: {what}")
    try:
        if takes_init and callable(getattr(found, "init", None)):
            made = found()
            made.init(args)  # type: ignore[attr-defined]
        else:
            made = found(*([] if args is None else [args]))
    except ConfigError as error:
        raise ConfigError(f"{option} {name}: {error}") from error
    except Exception as error:
        given = "without arguments" if args is None else f"with {args!r}"
        raise ConfigError(f"{option} {name}: cannot create the class {given}: {_said(error)}") from error
    return made


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
