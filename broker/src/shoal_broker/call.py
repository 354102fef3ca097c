"""A request's circumstances, as its handler sees them: everything but its body."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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
        error = None
        if fault is not None and fault.error is not None and (not topic or fault.concerns(topic, partition)):
            error = ApiError(fault.error, "a fault that a test ordered")
        if error is not None and fault is not None and fault.effect == "before":
            raise error
        yield
        if error is not None:
            raise error

    def code_of(self, error: ApiError) -> ErrorCode:
        """Return an error's code, or the older one that clients of this version know in its place."""
        if error.code is ErrorCode.PRODUCER_FENCED and self.version < _FENCED_FROM.get(self.api, 0):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return error.code
