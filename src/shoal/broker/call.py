"""A request as its handler sees it, apart from its body."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..error_codes import ErrorCode
from ..protocol.apis import ApiKey
from .api_error import ApiError
from .faults import Fault

__all__ = ["Call"]


@dataclass(frozen=True, slots=True)
class Call:
    """
    Who asks what, and the fault that the request meets, if it meets one.

    Attributes:
        api: The API.
        version: Of the request, and so of the response.
        client_id: As the client calls itself.
        client_host: Its address.
        fault: What a test wants to go wrong.
        has_hung_up: Tells whether the client did, which does not wait for the answer then.
        may_wait: Whether the request may wait for something; a large one would keep its memory meanwhile.

    """

    api: ApiKey
    version: int
    client_id: str
    client_host: str
    fault: Fault | None = None
    has_hung_up: Callable[[], bool] = lambda: False
    may_wait: bool = True

    def check_before(self, topic: str = "", partition: int = -1) -> None:
        """
        Let a fault refuse the request, or its part for one partition, before it has any effect.

        Raises:
            ApiError: With the fault's error.

        """
        self._check("before", topic, partition)

    def check_after(self, topic: str = "", partition: int = -1) -> None:
        """
        Let a fault answer an error for what took effect.

        Raises:
            ApiError: With the fault's error.

        """
        self._check("after", topic, partition)

    def code_of(self, refused: ApiError, *, fenced_from: int) -> ErrorCode:
        """Return a refusal's code; PRODUCER_FENCED is none that a version before that one knows (KIP-588)."""
        if refused.code is ErrorCode.PRODUCER_FENCED and self.version < fenced_from:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return refused.code

    def _check(self, effect: str, topic: str, partition: int) -> None:
        fault = self.fault
        if fault is None or fault.error is None or fault.effect != effect:
            return
        if not topic or fault.concerns(topic, partition):
            raise ApiError(fault.error, "a fault that a test asked for")
