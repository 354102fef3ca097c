"""
Answer the errors of a request's parts.

A part is what has an error code of its own in the response: the request, a topic, a partition, a group. Its
handler makes the part's answer first, with the values that go with an error, and fills it in under
:func:`errors_in`. A message's fields that a handler leaves out have Kafka's defaults, so ``error_code`` is
none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..api_error import ApiError
from ..call import Call

__all__ = ["errors_in"]


@contextmanager
def errors_in(answer: Any, call: Call, *, code: str = "error_code") -> Iterator[None]:
    """
    Put an ApiError of the block into the answer of a request's part.

    Args:
        answer: The message with the error code, and perhaps an error message.
        code: The name of the error code's field.

    """
    has_message = hasattr(answer, "error_message")
    if has_message:
        answer.error_message = None
    try:
        yield
    except ApiError as error:
        setattr(answer, code, call.code_of(error))
        if has_message:
            answer.error_message = error.message
