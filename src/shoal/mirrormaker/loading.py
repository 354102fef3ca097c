"""Objects of the classes that users name on the command line."""

from __future__ import annotations

from typing import TypeVar

from ..errors import ConfigError
from ..named_class import find_class, short_error

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
    found = find_class(option, name)
    if not issubclass(found, kind):
        raise ConfigError(f"{option} {name}: it is not a subclass of {kind.__name__}")
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
        raise ConfigError(
            f"{option} {name}: cannot create the class {given}: {short_error(error)}"
        ) from error
    return made
