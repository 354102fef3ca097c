"""
Faults on demand: what a test makes go wrong, and how often.

A fault is found by the API of a request, and by its partitions or its client where it names
them. It may delay the request, drop the
connection before or after the request took effect, or answer an error code.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Literal

from ..error_codes import ErrorCode
from ..protocol.apis import ApiKey

__all__ = ["Fault", "Faults"]


@dataclass(slots=True, eq=False)
class Fault:
    """
    One thing that goes wrong.

    Attributes:
        api: Whose requests.
        times: How many requests it meets; None for all until it is removed.
        error: The code to answer.
        effect: ``"before"``: nothing is done and the error is answered.
            ``"after"``: the request takes effect, and the error is answered all
            the same, as with a time-out.
        drop: Close the connection in place of an answer, before or after the
            request took effect; or after the first half of the answer.
        delay_s: Wait so long, in seconds, before anything else.
        topic: Only requests for this topic; where an API answers for each
            partition, the error is for those of this topic alone.
        partition: Likewise.
        client_id: Only requests on connections of clients that call themselves so.
        hits: How many requests it met.

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
        return self.topic in (None, topic) and self.partition in (None, partition)


#: What has no error to answer: a client could not go on.
_WITHOUT_ERRORS = frozenset({ApiKey.API_VERSIONS})

#: What changes nothing, so that there is no "after the effect".
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
        """Whether any fault is waiting."""
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
        Add a fault (see :class:`Fault`); of several for an API, the oldest goes first.

        Raises:
            ValueError: The API cannot answer that.

        """
        if error is not None and api in _WITHOUT_ERRORS:
            raise ValueError(f"{api.name} has no error to answer; drop or delay it")
        if error is not None and effect == "after" and api in _WITHOUT_EFFECT:
            raise ValueError(f"{api.name} has no effect that an error could come after")
        fault = Fault(api, times, error, effect, drop, delay_s, topic, partition, client_id)
        with self._changed:
            self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Let it go wrong no more; no matter if it is used up."""
        with self._changed:
            if fault in self._faults:
                self._faults.remove(fault)

    def clear(self) -> None:
        with self._changed:
            self._faults.clear()

    def wait_for(self, fault: Fault, hits: int = 1, timeout_s: float = 10.0) -> bool:
        """Wait until a fault has met so many requests; tell whether it did in time."""
        with self._changed:
            return self._changed.wait_for(lambda: fault.hits >= hits, timeout_s)

    def take(self, api: ApiKey, partitions: set[tuple[str, int]], client_id: str) -> Fault | None:
        """
        Return the fault that a request meets, and count it.

        Args:
            api: The request's.
            partitions: Those it names, as far as the API names any.
            client_id: As its client calls itself.

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
