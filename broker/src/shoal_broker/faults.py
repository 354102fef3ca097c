"""
Faults on demand: the failures that a test orders, and their number.

A fault meets requests of one API, optionally only those for a partition or of a client. It delays the
request, drops the connection before or after the request took effect, or answers an error code.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Literal

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey

__all__ = ["Fault", "Faults"]


@dataclass(slots=True, eq=False)
class Fault:
    """
    A failure that a test ordered.

    Attributes:
        api: The API whose requests fail.
        times: The number of requests that fail; None for all until it is removed.
        error: The code to answer.
        effect: ``"before"``: the request has no effect. ``"after"``: the request takes effect, and the error
            is answered nevertheless, as with a timeout.
        drop: Close the connection in place of an answer, before or after the request took effect; or after
            the first half of the answer.
        delay_s: The delay before anything else, in seconds.
        topic: Only requests for this topic fail. If an API answers for each partition, only those of this
            topic get the error.
        partition: The same for a partition.
        client_id: Only requests of clients with this id fail.
        hits: The number of requests that it met.

    """

    api: ApiKey
    times: int | None = 1
    error: ErrorCode | None = None
    effect: Literal["before", "after"] = "before"
    drop: Literal["before", "after", "within"] | None = None
    delay_s: float = 0.0
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    hits: int = field(default=0, init=False)

    def concerns(self, topic: str, partition: int) -> bool:
        """Return whether the fault is for this partition."""
        return self.topic in (None, topic) and self.partition in (None, partition)


#: The APIs that answer no error, since a client could not continue.
_WITHOUT_ERRORS = frozenset({ApiKey.API_VERSIONS})

#: The APIs that change nothing, so that a fault cannot come after the effect.
_WITHOUT_EFFECT = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.API_VERSIONS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    }
)


class Faults:
    """The faults of a broker. Safe to use from several threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._faults: list[Fault] = []

    def __bool__(self) -> bool:
        """Whether there is any fault."""
        return bool(self._faults)

    def add(
        self,
        api: ApiKey,
        *,
        times: int | None = 1,
        error: ErrorCode | None = None,
        effect: Literal["before", "after"] = "before",
        drop: Literal["before", "after", "within"] | None = None,
        delay_s: float = 0.0,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """
        Add a fault (see :class:`Fault`); of several for an API, the oldest comes first.

        Raises:
            ValueError: The API cannot answer that.

        """
        if error is not None and api in _WITHOUT_ERRORS:
            raise ValueError(f"{api.name} has no error to answer. Drop or delay it")
        if error is not None and effect == "after" and api in _WITHOUT_EFFECT:
            raise ValueError(f"{api.name} changes nothing, so a fault after it has no effect")
        fault = Fault(api, times, error, effect, drop, delay_s, topic, partition, client_id)
        with self._changed:
            self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Remove a fault; one that is used up is gone already."""
        with self._changed:
            if fault in self._faults:
                self._faults.remove(fault)

    def clear(self) -> None:
        """Remove all faults."""
        with self._changed:
            self._faults.clear()

    def wait_for(self, fault: Fault, hits: int = 1, timeout_s: float = 10.0) -> bool:
        """Wait until a fault has met this number of requests; return whether it did in time."""
        with self._changed:
            return self._changed.wait_for(lambda: fault.hits >= hits, timeout_s)

    def take(self, api: ApiKey, partitions: set[tuple[str, int]], client_id: str) -> Fault | None:
        """
        Return the fault for a request, and count the hit.

        Args:
            api: The API of the request.
            partitions: The partitions of the request, if it has any.
            client_id: The client's name for itself.

        """
        with self._changed:
            for fault in self._faults:
                if fault.api is api and fault.client_id in (None, client_id) and _meets(fault, partitions):
                    fault.hits += 1
                    if fault.hits == fault.times:
                        self._faults.remove(fault)
                    self._changed.notify_all()
                    return fault
        return None


def _meets(fault: Fault, partitions: set[tuple[str, int]]) -> bool:
    if fault.topic is None and fault.partition is None:
        return True
    return any(fault.concerns(*each) for each in partitions)
