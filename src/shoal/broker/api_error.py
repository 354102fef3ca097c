"""The one exception that becomes an error code in a response."""

from __future__ import annotations

from collections.abc import Sequence

from ..error_codes import ErrorCode

__all__ = ["ApiError"]


class ApiError(Exception):
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

    def without_origin(self) -> ApiError:
        """
        Return an equal refusal without a traceback and a cause, to be kept.

        Their frames hold the request and what it was decompressed to. If one of them holds the refusal, all
        of that stays until the next full collection of garbage, which a large process does rarely.
        """
        return ApiError(self.code, self.message, self.record_errors)
