"""Brokers that answer late, or otherwise than they should."""

from __future__ import annotations

import itertools
import math
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import FetchResponse
from shoal_broker import Broker
from shoal_broker.call import Call
from shoal_broker.state import BrokerState
from tests.world.waiting import DEADLINE_S

__all__ = [
    "Held",
    "answers",
    "answers_without_later_commits",
    "before_request",
    "leads_elsewhere",
    "let_pass",
    "list_commits",
    "lists_no_groups",
    "refuses_offsets",
    "second_node",
]


def let_pass(broker: Broker, api: ApiKey, requests: int) -> None:
    """Let this many requests pass before the faults that are added next."""
    if requests:
        broker.faults.add(api, times=requests)


def list_commits(broker: Broker, oldest: int, newest: int) -> None:
    """Let a broker list these versions of OffsetCommit: only v2 to v4 have a retention time."""
    api = replace(broker.apis[ApiKey.OFFSET_COMMIT], oldest=oldest, newest=newest)
    broker.apis = {**broker.apis, ApiKey.OFFSET_COMMIT: api}


def answers(
    broker: Broker,
    api: ApiKey,
    change: Callable[[Any], Any],
    times: int = 1,
    to: Callable[[Any], bool] = lambda request: True,
) -> None:
    """Change a broker's next responses, or those to some requests."""
    before = broker.apis[api]
    left = itertools.count(times, -1)

    def handle(broker: BrokerState, call: Call, request: Any) -> Any:
        response = before.handle(broker, call, request)
        return change(response) if to(request) and next(left) > 0 else response

    broker.apis = {**broker.apis, api: replace(before, handle=handle)}


def before_request(broker: Broker, api: ApiKey, happen: Callable[[], object], number: int = 1) -> None:
    """Let something happen just before a broker serves one of its next requests, counted from 1."""
    before = broker.apis[api]
    numbers = itertools.count(1)

    def handle(broker: BrokerState, call: Call, request: Any) -> Any:
        if next(numbers) == number:
            happen()
        return before.handle(broker, call, request)

    broker.apis = {**broker.apis, api: replace(before, handle=handle)}


def refuses_offsets(broker: Broker, times: int) -> None:
    """Have a broker refuse the offsets of its fetch requests, whatever log ends it reports."""

    def refused(response: FetchResponse) -> FetchResponse:
        code = ErrorCode.OFFSET_OUT_OF_RANGE
        parts = [replace(each, error_code=code, record_set=memoryview(b"")) for each in response.partitions]
        return replace(response, partitions=parts)

    answers(broker, ApiKey.FETCH, refused, times)


def lists_no_groups(broker: Broker, times: int = 1) -> None:
    """Have a broker list no groups, and no error, as while their coordinator moves."""

    def without_groups(response: Any) -> Any:
        response.groups.clear()
        return response

    answers(broker, ApiKey.LIST_GROUPS, without_groups, times)


def answers_without_later_commits(broker: Broker) -> None:
    """
    Have a coordinator show no offsets to reads without ``require_stable``.

    Kafka 4 does so after a move: such reads end at the new leader's high watermark, which it may not have
    yet (CoordinatorRuntime, ``lastCommittedOffset``).
    """
    before = broker.apis[ApiKey.OFFSET_FETCH]

    def handle(broker: BrokerState, call: Call, request: Any) -> Any:
        response = before.handle(broker, call, request)
        if not request.require_stable:
            for answered in (response, *response.groups):
                for topic in answered.topics:
                    for each in topic.partitions:
                        each.committed_offset, each.metadata = -1, ""
        return response

    broker.apis = {**broker.apis, ApiKey.OFFSET_FETCH: replace(before, handle=handle)}


class Held:
    """The first requests of an API that a broker answers only after they are released, however late."""

    def __init__(
        self, broker: Broker, api: ApiKey, partition: int | None = None, times: float = math.inf
    ) -> None:
        self._changed = threading.Condition()
        self._released = False
        self._held = self._inside = 0
        before = broker.apis[api]

        def handle(broker: BrokerState, call: Call, request: Any) -> Any:
            if partition is not None and partition not in _partitions_named(request):
                return before.handle(broker, call, request)
            with self._changed:
                if self._held == times:
                    return before.handle(broker, call, request)
                self._held += 1
                self._inside += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._released, 60)
            try:
                return before.handle(broker, call, request)
            finally:
                with self._changed:
                    self._inside -= 1
                    self._changed.notify_all()

        broker.apis = {**broker.apis, api: replace(before, handle=handle)}

    def wait_for_one(self) -> None:
        """Wait until a request is held."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._inside > 0, DEADLINE_S), "none comes"

    def release(self) -> None:
        """Release all requests, including later ones; return when the held ones have taken effect."""
        with self._changed:
            self._released = True
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._inside == 0, DEADLINE_S), "one does not end"


def _partitions_named(request: Any) -> set[int]:
    return {each.partition for topic in request.topics for each in topic.partitions}


def second_node(first: Broker) -> Broker:
    """Return another node of a broker's cluster, which reports itself as the leader of everything."""
    second = Broker(cluster_id=first.cluster_id, node_id=first.node_id + 1)
    second.topics, second.groups, second.transactions = first.topics, first.groups, first.transactions
    return second


_refusing: list[socket.socket] = []


def leads_elsewhere(broker: Broker, topic: str, partition: int) -> None:
    """Make a broker return an unreachable node as a partition's leader."""
    api = broker.apis[ApiKey.METADATA]
    refusing = socket.socket()
    refusing.bind((broker.host, 0))  # kept without listening, so that no other process gets the port
    _refusing.append(refusing)
    port = refusing.getsockname()[1]

    def handle(broker: BrokerState, call: Call, request: Any) -> Any:
        response = api.handle(broker, call, request)
        here = response.brokers[0]
        response.brokers.append(type(here)(node_id=99, host=here.host, port=port, rack=None))
        for described in response.topics:
            for each in described.partitions:
                if (described.name, each.partition_index) == (topic, partition):
                    each.leader_id = 99
        return response

    broker.apis = {**broker.apis, ApiKey.METADATA: replace(api, handle=handle)}
