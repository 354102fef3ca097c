"""A request's circumstances, as its handler sees them: everything but its body."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

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

    def check_fault(self, effect: Literal["before", "after"], topic: str = "", partition: int = -1) -> None:
        """
        Raise the fault's error, if it has one that is due before or after the effect of this part.

        Raises:
            ApiError: With the fault's error.

        """
        fault = self.fault
        if fault is None or fault.error is None or fault.effect != effect:
            return
        if not topic or fault.concerns(topic, partition):
            raise ApiError(fault.error, "a fault that a test ordered")

    def code_of(self, error: ApiError) -> ErrorCode:
        """Return an error's code, or the older one that clients of this version know in its place."""
        if error.code is ErrorCode.PRODUCER_FENCED and self.version < _FENCED_FROM.get(self.api, 0):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return error.code
