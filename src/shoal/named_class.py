"""Classes that users name in options, as ``package.module:Class``."""

from __future__ import annotations

import importlib
from typing import Any

from .errors import ConfigError

__all__ = ["find_class", "short_error"]


def find_class(option: str, name: str) -> type[Any]:
    """
    Import a class.

    Args:
        option: The option that errors name, such as ``--message.handler``.
        name: ``package.module:Class``.

    Raises:
        ConfigError: There is no such class, or its module cannot be imported.

    """
    module, colon, class_name = name.partition(":")
    if not (module and colon and class_name):
        raise ConfigError(f"{option} {name}: not package.module:Class")
    try:
        found = getattr(importlib.import_module(module), class_name, None)
    except ImportError as error:
        raise ConfigError(
            f"{option} {name}: {error}. Add the directory of a module that is not installed to PYTHONPATH"
        ) from error
    except Exception as error:
        raise ConfigError(f"{option} {name}: importing it failed: {short_error(error)}") from error
    if found is None:
        raise ConfigError(f"{option} {name}: there is no such class")
    if not isinstance(found, type):
        raise ConfigError(f"{option} {name}: it is not a class")
    return found


def short_error(error: Exception) -> str:
    """Return the type and the text of an exception of the user's code."""
    return f"{type(error).__name__}: {error}"
