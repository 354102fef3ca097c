"""How many requests a client has sent before it has the answer to the first of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rig.proxy import frames_waiting_in
from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from shoal_broker.call import Call
from shoal_broker.state import BrokerState

__all__ = ["RequestsInFlight"]


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
            self.most = max(self.most, 1 + frames_waiting_in(client))
            return api.handle(state, call, request)

        broker.apis = {**broker.apis, ApiKey.PRODUCE: replace(api, handle=handle)}
