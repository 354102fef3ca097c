"""The exception that becomes an error code in a response."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.error_codes import ErrorCode

__all__ = ["ApiError"]


class ApiError(Exception):
    """
    The broker refuses a request, or a part of it; nothing was changed.

    Attributes:
        code: The error code of the response.
        message: The reason, for responses that have a message.
        record_errors: ``(index of the record, reason)`` if single records are at fault (Produce from v8).

    """

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.record_errors = record_errors
