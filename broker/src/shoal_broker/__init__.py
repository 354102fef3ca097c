"""
Kafka in Python: one broker, over real sockets, with logs in memory.

For demos, tests and development, and for reading: it refuses the requests that Kafka refuses, with Kafka's
error codes and in Kafka's order. It is not a production broker.

:mod:`.server` has the sockets, and :mod:`.dispatch` the path of a request. :mod:`.apis` has one file for each
family of APIs, and :mod:`.state` the state that they share. :mod:`.coordination` has groups, transactions,
leaders and waiting requests. :mod:`.storage` has a partition's log and its checks. :mod:`.faults` has the
failures that a test orders. :mod:`.cluster` runs several brokers.
"""

from .api_error import ApiError
from .broker import Broker
from .cluster import BrokerCluster
from .faults import Fault, Faults

__all__ = ["ApiError", "Broker", "BrokerCluster", "Fault", "Faults"]
