"""The APIs that the broker serves, each with its versions and the function that handles it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ...protocol.apis import ApiKey
from ..call import Call
from . import (
    api_versions,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)

if TYPE_CHECKING:
    from ..broker import Broker

__all__ = ["APIS", "Api"]


class Handler(Protocol):
    """
    Does what a request asks.

    The request and the response are messages of ``shoal.protocol``: for
    Produce and Fetch the dataclasses there, else the classes of its codec. It
    raises nothing but :class:`~shoal.broker.waiting.BrokerStopped`.

    """

    def __call__(self, broker: Broker, call: Call, request: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Api:
    """
    One API.

    Attributes:
        key: Its number.
        oldest: The oldest version that is served.
        newest: The newest.
        handle: What serves it.

    """

    key: ApiKey
    oldest: int
    newest: int
    handle: Handler


def _table(*apis: Api) -> Mapping[ApiKey, Api]:
    return {api.key: api for api in apis}


APIS = _table(
    Api(ApiKey.PRODUCE, 3, 12, produce.handle),
    Api(ApiKey.FETCH, 4, 12, fetch.handle),
    Api(ApiKey.LIST_OFFSETS, 1, 8, list_offsets.handle),
    Api(ApiKey.METADATA, 1, 12, metadata.handle),
    Api(ApiKey.FIND_COORDINATOR, 0, 4, find_coordinator.handle),
    Api(ApiKey.API_VERSIONS, 0, 4, api_versions.handle),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5, init_producer_id.handle),
)
