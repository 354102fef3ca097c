"""The requests that brokers get: how many of each kind, and how many before the first is answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from rig.proxy import frames_waiting_in
from shoal.errors import ProtocolError
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import read_request_header
from shoal.protocol.produce import ProduceRequest, decode_produce_request
from shoal.records import split
from shoal_broker import Broker
from shoal_broker.call import Call
from shoal_broker.clock import now_ms
from shoal_broker.state import BrokerState
from tests.world.faults import before_each_request

__all__ = ["RequestsInFlight", "counted"]

#: Records so old that the broker may forget their producer at any time: a day, and a margin for the clock.
_OLD_MS = 2 * 86_400_000


def counted(brokers: Iterable[Broker]) -> Counter[ApiKey]:
    """Return the numbers of requests of each kind that brokers get from now on; it may be cleared."""
    counts: Counter[ApiKey] = Counter()

    def count(api: ApiKey, request: object) -> None:
        counts[api] += 1

    for broker in brokers:
        for api in broker.apis:
            before_each_request(broker, api, partial(count, api))
    return counts


class RequestsInFlight:
    """
    Looks at the Produce requests in flight on each connection to a broker, whenever it handles one.

    Attributes:
        most: The most that any connection had.
        behind_old: Requests with old records of a partition that another one of it followed at once. If the
            broker refuses such a request and forgets the producer, it takes the next one all the same.

    """

    def __init__(self, broker: Broker) -> None:
        self.most = self.behind_old = 0
        api = broker.apis[ApiKey.PRODUCE]

        def handle(state: BrokerState, call: Call, request: Any) -> Any:
            (client,) = call.has_hung_up.args  # type: ignore[attr-defined]
            waiting = frames_waiting_in(client)
            self.most = max(self.most, 1 + len(waiting))
            self.behind_old += any(_partitions_of(frame) & _old_in(request) for frame in waiting)
            return api.handle(state, call, request)

        broker.apis = {**broker.apis, ApiKey.PRODUCE: replace(api, handle=handle)}


def _old_in(request: ProduceRequest) -> set[int]:
    """Return the partitions of which a request has old records."""
    before = now_ms() - _OLD_MS
    return {
        each.partition
        for each in request.partitions
        for batch in split(each.record_set or memoryview(b""))
        if 0 <= batch.header.max_timestamp < before
    }


def _partitions_of(frame: bytes) -> set[int]:
    """Return the partitions of a Produce request; none if it is another request, or lacks a part."""
    try:
        header = read_request_header(memoryview(frame))
        if header.api_key != ApiKey.PRODUCE:
            return set()
        found = decode_produce_request(memoryview(frame), header.api_version).partitions
    except ProtocolError:
        return set()
    return {each.partition for each in found}
