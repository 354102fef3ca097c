"""
Serve a request, or each part of it, and answer an error for a part that fails.

A part is what has an error code of its own in the response: the request, a topic, a partition, a group.
:func:`answer_errors` turns an :class:`~..api_error.ApiError` into the part's error answer. The faults that a
test orders take effect there too, so handlers do not know them.

A message's fields that a handler leaves out have Kafka's defaults, so ``error_code`` is none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from shoal.error_codes import ErrorCode

from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState

__all__ = ["answer_errors", "error_code", "error_in", "of_partition", "of_topic"]

Part = ParamSpec("Part")
Answer = TypeVar("Answer")


def answer_errors(
    refuse: Callable[..., Answer],
    *,
    place: Callable[..., tuple[Any, ...]] = lambda *_: (),
    effects: Collection[Literal["before", "after"]] = ("before", "after"),
) -> Callable[
    [Callable[Concatenate[BrokerState, Call, Part], Answer]],
    Callable[Concatenate[BrokerState, Call, Part], Answer],
]:
    """
    Have a function that serves a part of a request answer its errors.

    Args:
        refuse: Returns the error's answer. It is called like the function, with the error in place of the
            state.
        place: Returns the topic and the partition of a part, as far as it has them, for faults.
        effects: The effects of faults that this part answers. OffsetCommit, for example, checks each
            partition before the one commit of all of them.

    """

    def decorate(
        serve: Callable[Concatenate[BrokerState, Call, Part], Answer], /
    ) -> Callable[Concatenate[BrokerState, Call, Part], Answer]:
        @wraps(serve)
        def served(state: BrokerState, call: Call, /, *part: Part.args, **options: Part.kwargs) -> Answer:
            try:
                if "before" in effects:
                    call.check_fault("before", *place(*part))
                answer = serve(state, call, *part, **options)
                if "after" in effects:
                    call.check_fault("after", *place(*part))
            except ApiError as error:
                return refuse(error, call, *part, **options)
            return answer

        return served

    return decorate


def of_topic(topic: str, *_: object) -> tuple[str]:
    """Return the place of a part whose first argument is its topic."""
    return (topic,)


def of_partition(topic: str, partition: int, *_: object) -> tuple[str, int]:
    """Return the place of a part whose first arguments are its topic and its partition."""
    return topic, partition


def error_in(message_class: Any, **fields: Any) -> Callable[..., Any]:
    """Return a ``refuse`` that answers with a message of this class, which has the error code and fields."""
    return lambda error, call, *part, **options: message_class(error_code=call.code_of(error), **fields)


def error_code(error: ApiError, call: Call, *_: object, **options: object) -> ErrorCode:
    """Refuse a part that is answered by nothing but an error code."""
    return call.code_of(error)
