"""
Let the texts of errors of ``format("shoal")`` begin with their message.

Spark reports an error in its Python processes as the text of its traceback: some fifteen lines, and the last
one is the message. Python prints the cause of an error above the error. So shoal raises an error whose cause
is a copy of the error without a traceback, which is the message alone.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, TypeVar

from shoal.errors import ShoalError

__all__ = ["ReportedError", "sentence_first"]

T = TypeVar("T", bound=type)


class ReportedError(ShoalError):
    """An error of shoal's that Spark reports, with the message first."""

    def __init__(self, error: ShoalError) -> None:
        super().__init__(str(error))
        self._sentence = copy.copy(error)

    @property
    def __cause__(self) -> BaseException:
        """Return the error without its traceback."""
        return self._sentence

    @__cause__.setter
    def __cause__(self, cause: BaseException | None) -> None:
        """Keep the cause: Spark sets it to None before it prints (simplified tracebacks)."""


def sentence_first(kind: T) -> T:
    """Decorate a class, so that shoal's errors from its public methods begin with their message."""
    for name, method in list(vars(kind).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(kind, name, _guarded(method))
    return kind


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def guarded(*args: Any, **named: Any) -> Any:
        with _sentence_before_traceback():
            result = method(*args, **named)
        # A generator raises its errors later, while Spark iterates over it.
        return _guarded_rows(result) if isinstance(result, Iterator) else result

    return guarded


def _guarded_rows(rows: Iterator[Any]) -> Iterator[Any]:
    with _sentence_before_traceback():
        yield from rows


@contextmanager
def _sentence_before_traceback() -> Iterator[None]:
    try:
        yield
    except ReportedError:
        raise
    except ShoalError as error:
        raise ReportedError(error).with_traceback(error.__traceback__) from None
