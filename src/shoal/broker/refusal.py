"""The one exception that becomes an error code in a response."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ErrorCode

__all__ = ["Refused"]


class Refused(Exception):
    """
    The broker will not do it; nothing was changed.

    Attributes:
        code: What the client is told.
        message: Why, for responses that have room for words.
        record_errors: ``(index of the record, why)`` where single records are
            at fault (Produce v8 and later tell the client).

    """

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.record_errors = record_errors
