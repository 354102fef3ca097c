"""How many requests of each kind the brokers of a cluster have had."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from shoal_broker.call import Call
from shoal_broker.state import Api, BrokerState

__all__ = ["RequestsCounted"]


class RequestsCounted:
    """
    Counts the requests that the brokers of a cluster handle.

    Attributes:
        counts: The requests by their kind, since the last :meth:`begin`.

    """

    def __init__(self, brokers: Sequence[Broker]) -> None:
        self.counts: Counter[ApiKey] = Counter()
        for broker in brokers:
            broker.apis = {key: self._counted(key, api) for key, api in broker.apis.items()}

    def begin(self) -> None:
        """Count from now on."""
        self.counts = Counter()

    def _counted(self, key: ApiKey, api: Api) -> Api:
        def handle(state: BrokerState, call: Call, request: Any) -> Any:
            self.counts[key] += 1
            return api.handle(state, call, request)

        return replace(api, handle=handle)
