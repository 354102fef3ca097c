"""
Kafka in Python: one broker, over real sockets, with logs in memory or in Kafka's own files.

For demos, tests and development, and to be read: it refuses what Kafka
refuses, with Kafka's error codes, in Kafka's order. It is not a production
broker.

Where to look: :mod:`.serving` has the sockets and what happens to a request, :mod:`.apis` one file per API
and the faults that a test can make, :mod:`.coordination` groups, transactions, leaders and waiting requests,
:mod:`.storage` a partition's log, what it refuses, and what outlives a process, :mod:`.old_clients` what
clients get that Kafka 4 refuses; :mod:`.topics` and :mod:`.config` what all of them share,
and :mod:`.cluster` several brokers.
"""

from .api_error import ApiError
from .apis.faults import Fault, Faults
from .broker import Broker
from .cluster import BrokerCluster

__all__ = ["ApiError", "Broker", "BrokerCluster", "Fault", "Faults"]
