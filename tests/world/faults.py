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
    "before_each_request",
    "before_request",
    "leads_elsewhere",
    "led_by_another",
    "let_pass",
    "list_by_name",
    "lists_no_groups",
    "offer",
    "referring",
    "refuses_offsets",
    "second_node",
    "serve_by",
    "without_records",
]


def let_pass(broker: Broker, api: ApiKey, requests: int) -> None:
    """Let this many requests pass before the faults that are added next."""
    if requests:
        broker.faults.add(api, times=requests)


def serve_by(broker: Broker, api: ApiKey, serve: Callable[[Any, Callable[[Any], Any]], Any]) -> None:
    """Let a function return the responses of an API: it gets a request, and what answers one otherwise."""
    before = broker.apis[api]

    def handle(state: BrokerState, call: Call, request: Any) -> Any:
        return serve(request, lambda asked: before.handle(state, call, asked))

    broker.apis = {**broker.apis, api: replace(before, handle=handle)}


def offer(broker: Broker, *apis: ApiKey, **versions: Any) -> None:
    """Let a broker offer other versions of some APIs: from ``oldest``, up to ``newest``."""
    broker.apis = {**broker.apis, **{each: replace(broker.apis[each], **versions) for each in apis}}


def list_by_name(broker: Broker) -> None:
    """Let a broker offer the versions of Kafka before 3.1, by which requests list topics by name."""
    offer(broker, ApiKey.FETCH, ApiKey.PRODUCE, newest=12)


def answers(
    broker: Broker,
    api: ApiKey,
    change: Callable[[Any], Any],
    times: float = 1,
    to: Callable[[Any], bool] = lambda request: True,
) -> None:
    """Change a broker's next responses, or those to some requests."""
    left = itertools.count(times, -1)

    def serve(request: Any, answer: Callable[[Any], Any]) -> Any:
        response = answer(request)
        return change(response) if to(request) and next(left) > 0 else response

    serve_by(broker, api, serve)


def before_request(broker: Broker, api: ApiKey, happen: Callable[[], object], number: int = 1) -> None:
    """Let something happen just before a broker serves one of its next requests, counted from 1."""
    numbers = itertools.count(1)

    def serve(request: Any, answer: Callable[[Any], Any]) -> Any:
        if next(numbers) == number:
            happen()
        return answer(request)

    serve_by(broker, api, serve)


def before_each_request(broker: Broker, api: ApiKey, happen: Callable[[Any], object]) -> None:
    """Let something happen just before a broker serves any request; it gets the request."""

    def serve(request: Any, answer: Callable[[Any], Any]) -> Any:
        happen(request)
        return answer(request)

    serve_by(broker, api, serve)


def without_records(response: FetchResponse) -> FetchResponse:
    """Return a response to a fetch without its records."""
    left = [replace(each, record_set=memoryview(b"")) for each in response.partitions]
    return replace(response, partitions=left)


def referring(response: FetchResponse, to_node: int) -> FetchResponse:
    """Return a response to a fetch by which a leader refers to a follower: it has no records (KIP-392)."""
    left = without_records(response).partitions
    return replace(response, partitions=[replace(each, preferred_read_replica=to_node) for each in left])


def refuses_offsets(broker: Broker, times: int) -> None:
    """Have a broker refuse the offsets of its fetch requests, whatever log ends it reports."""

    def refused(response: FetchResponse) -> FetchResponse:
        code = ErrorCode.OFFSET_OUT_OF_RANGE
        parts = [replace(each, error_code=code) for each in without_records(response).partitions]
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

    def without_offsets(response: Any) -> Any:
        for answered in (response, *response.groups):
            for topic in answered.topics:
                for each in topic.partitions:
                    each.committed_offset, each.metadata = -1, ""
        return response

    unstable = math.inf, lambda request: not request.require_stable
    answers(broker, ApiKey.OFFSET_FETCH, without_offsets, *unstable)


def led_by_another(response: Any, host: str, port: int, partition: tuple[str, int] | None = None) -> Any:
    """Name an address as the leader of one partition, or of all, in a response about topics."""
    response.brokers.append(type(response.brokers[0])(node_id=99, host=host, port=port, rack=None))
    for topic in response.topics:
        for each in topic.partitions:
            if partition in (None, (topic.name, each.partition_index)):
                each.leader_id = 99
    return response


class Held:
    """The first requests of an API that a broker answers only after they are released, however late."""

    def __init__(
        self, broker: Broker, api: ApiKey, partition: int | None = None, times: float = math.inf
    ) -> None:
        self._changed = threading.Condition()
        self._released = False
        self._held = self._inside = 0

        def serve(request: Any, answer: Callable[[Any], Any]) -> Any:
            if partition is not None and partition not in _partitions_named(request):
                return answer(request)
            with self._changed:
                if self._held == times:
                    return answer(request)
                self._held += 1
                self._inside += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._released, 60)
            try:
                return answer(request)
            finally:
                with self._changed:
                    self._inside -= 1
                    self._changed.notify_all()

        serve_by(broker, api, serve)

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
    refusing = socket.socket()
    refusing.bind((broker.host, 0))  # kept without listening, so that no other process gets the port
    _refusing.append(refusing)
    port = refusing.getsockname()[1]

    def elsewhere(response: Any) -> Any:
        return led_by_another(response, broker.host, port, (topic, partition))

    answers(broker, ApiKey.METADATA, elsewhere, math.inf)
