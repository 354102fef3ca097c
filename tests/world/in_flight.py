"""How many requests a client has sent before it has the answer to the first of them."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from shoal_broker.call import Call
from shoal_broker.state import BrokerState

__all__ = ["RequestsInFlight"]

#: More than the requests of a trial take.
_MOST_BYTES = 4 * 1024 * 1024


class RequestsInFlight:
    """
    Counts the Produce requests in flight on each connection to a broker, whenever it handles one.

    Attributes:
        most: The most that any connection had.

    """

    def __init__(self, broker: Broker) -> None:
        self.most = 0
        api = broker.apis[ApiKey.PRODUCE]

        def handle(state: BrokerState, call: Call, request: Any) -> Any:
            (client,) = call.has_hung_up.args  # type: ignore[attr-defined]
            self.most = max(self.most, 1 + _waiting_in(client))
            return api.handle(state, call, request)

        broker.apis = {**broker.apis, ApiKey.PRODUCE: replace(api, handle=handle)}


def _waiting_in(client: socket.socket) -> int:
    """Return how many requests have arrived and were not read yet."""
    try:
        arrived = client.recv(_MOST_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:  # none, or the client has gone
        return 0
    count = place = 0
    while place < len(arrived):
        place += 4 + int.from_bytes(arrived[place : place + 4])
        count += 1
    return count
