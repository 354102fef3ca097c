"""
The embedded broker with one rule broken: ``--server embedded/NAME``.

Each test has to fail on one of these at least: a test that passes on all of them shows nothing of a server.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from kafka.protocol.data_container import DataContainer

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import FetchResponse
from shoal_broker import Broker, server
from shoal_broker.dispatch import CloseConnection
from tests.world.faults import answers, serve_by

__all__ = ["BROKEN"]

_ANSWER = (8).to_bytes(4) + bytes(8)

#: Changes a field of a response, by its name; returns it as it is if the rule is about others.
Change = Callable[[str, Any], Any]


def _refuses_nothing(name: str, value: Any) -> Any:
    return ErrorCode.NONE if name == "error_code" else value


def _counts_one_more(name: str, value: Any) -> Any:
    is_counted = name.endswith(("offset", "watermark", "num_partitions", "factor")) and isinstance(value, int)
    return value + 1 if is_counted and value < 2**31 - 1 else value


def _names_others(name: str, value: Any) -> Any:
    """Change who a response is about: identities, epochs and generations."""
    if isinstance(value, str):
        return f"{value}x" if name not in ("topic", "name", "host") else value
    is_number = isinstance(value, int) and name.endswith(("epoch", "_id", "node")) and name != "node_id"
    return value + 1 if is_number and value < 2**31 - 1 else value


def _gives_no_own_ids(name: str, value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return uuid.UUID(int=7)
    return 7 if name == "producer_id" else value


def _announces_nothing(name: str, value: Any) -> Any:
    return [] if name in ("api_keys", "topics") else value


def _loses_bytes(name: str, value: Any) -> Any:
    return value[:-1] if isinstance(value, bytes | memoryview) and len(value) else value


def _leaves_out(name: str, value: Any) -> Any:
    """Leave out the last of several."""
    return value[:-1] if isinstance(value, tuple | list) and len(value) > 1 else value


def _changed(change: Change, value: Any) -> Any:
    """Return a response with each of its fields changed."""
    if isinstance(value, tuple | list):
        return type(value)(_changed(change, each) for each in value)
    if isinstance(value, DataContainer):
        for name in value.__slots__:
            setattr(value, name, _changed(change, change(name, getattr(value, name))))
        return value
    if not is_dataclass(value) or isinstance(value, type):
        return value
    found = {each.name: getattr(value, each.name) for each in fields(value)}
    return replace(value, **{name: _changed(change, change(name, each)) for name, each in found.items()})


def _in_answers(change: Change) -> Callable[[Broker], None]:
    def break_rule(broker: Broker) -> None:
        for api in broker.apis:
            answers(broker, api, lambda response: _changed(change, response), float("inf"))

    return break_rule


class _Answered(CloseConnection):
    """The connection closes behind an answer."""

    def __init__(self, reason: str, last_bytes: bytes = b"") -> None:
        super().__init__(reason, _ANSWER)


def _answers_anything(broker: Broker) -> None:
    """Answer what Kafka closes the connection for: requests, and frames of any size."""
    answer = broker.server.answer

    def answered(*request: Any) -> Sequence[bytes | memoryview]:
        try:
            return answer(*request)
        except CloseConnection:
            return [_ANSWER]

    broker.server.answer = answered
    # For good: this process tests no other server.
    server.CloseConnection = _Answered  # type: ignore[attr-defined]


def _waits_for_nothing(broker: Broker) -> None:
    broker.purgatory.wait_for = lambda condition, *more, **others: None  # type: ignore[method-assign]


def _lists_open_transactions(broker: Broker) -> None:
    """Look for times also in transactions that are open, whatever the reader asks for."""

    def serve(request: Any, answer: Callable[[Any], Any]) -> Any:
        if all(each.timestamp >= 0 for topic in request.topics for each in topic.partitions):
            request.isolation_level = 0
        return answer(request)

    serve_by(broker, ApiKey.LIST_OFFSETS, serve)


def _lists_one_aborted_transaction(broker: Broker) -> None:
    """List the aborted transaction that ended first, and no other."""

    def without_others(response: FetchResponse) -> FetchResponse:
        left = [
            replace(each, aborted_transactions=each.aborted_transactions[:1]) for each in response.partitions
        ]
        return replace(response, partitions=left)

    answers(broker, ApiKey.FETCH, without_others, float("inf"))


#: The breaks, by their names.
BROKEN: Mapping[str, Callable[[Broker], None]] = {
    "refuses-nothing": _in_answers(_refuses_nothing),
    "counts-one-more": _in_answers(_counts_one_more),
    "names-others": _in_answers(_names_others),
    "gives-no-own-ids": _in_answers(_gives_no_own_ids),
    "announces-nothing": _in_answers(_announces_nothing),
    "loses-bytes": _in_answers(_loses_bytes),
    "leaves-out": _in_answers(_leaves_out),
    "answers-anything": _answers_anything,
    "waits-for-nothing": _waits_for_nothing,
    "lists-open-transactions": _lists_open_transactions,
    "lists-one-aborted-transaction": _lists_one_aborted_transaction,
}
