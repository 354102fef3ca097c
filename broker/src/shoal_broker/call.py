"""
A request's circumstances, as its handler sees them: everything but its body.

A part of a request is what has an error code of its own in the response: the request, a topic, a partition, a
group. Its handler makes the part's answer first, with the values that go with an error, and fills it in
within :meth:`Call.part`. A message's fields that a handler leaves out have Kafka's defaults, so
``error_code`` is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey

from .api_error import ApiError
from .faults import Fault

__all__ = ["Call"]

#: The first version of each API that has PRODUCER_FENCED (KIP-588); a group coordinator never returns it.
_FENCED_FROM = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
    ApiKey.TXN_OFFSET_COMMIT: 1 << 15,
}


@dataclass(frozen=True, slots=True)
class Call:
    """
    The client, the version and the fault of one request.

    Attributes:
        version: The version of the request, and so of the response.
        client_id: The client's own name for itself.
        fault: The failure that a test ordered for this request.
        has_hung_up: Returns whether the client closed the connection.

    """

    api: ApiKey
    version: int
    client_id: str
    client_host: str
    fault: Fault | None = None
    has_hung_up: Callable[[], bool] = lambda: False

    @contextmanager
    def part(self, answer: Any, code: str = "error_code") -> Iterator[None]:
        """
        Put an ApiError of the block into the answer of a part of the request.

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
            setattr(answer, code, self.code_of(error))
            if has_message:
                answer.error_message = error.message

    @contextmanager
    def faults_at(self, topic: str = "", partition: int = -1) -> Iterator[None]:
        """
        Raise the fault's error before or after the effect of a part of the request, if it is due there.

        Args:
            topic: The topic of the part, if it has one.
            partition: The partition of the part, if it has one.

        Raises:
            ApiError: With the fault's error.

        """
        fault = self.fault
        if fault is None or fault.error is None or (topic and not fault.concerns(topic, partition)):
            yield
            return
        if fault.effect == "after":
            yield
        raise ApiError(fault.error, "a fault that a test ordered")

    def code_of(self, error: ApiError) -> ErrorCode:
        """Return an error's code, or the older one that clients of this version know in its place."""
        if error.code is ErrorCode.PRODUCER_FENCED and self.version < _FENCED_FROM.get(self.api, 0):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return error.code
