"""
Kafka in Python: one broker, over real sockets, with logs in memory or in Kafka's own files.

For demos, tests and development, and to be read: it refuses what Kafka
refuses, with Kafka's error codes, in Kafka's order. It is not a production
broker.

Where to look: :mod:`.server` has the sockets, :mod:`.dispatch` what happens to
a request, :mod:`.apis` one file per API, :mod:`.log` a partition,
:mod:`.segment` and :mod:`.file_segment` where its bytes are, :mod:`.validate`
and :mod:`.producers` what it refuses, :mod:`.multi_batch` KIP-712's half of
the broker, :mod:`.message_sets` and :mod:`.down_converted` what clients get
that Kafka 4 refuses, :mod:`.data_directory` and :mod:`.journal` what outlives a process,
:mod:`.topics`, :mod:`.config`, :mod:`.faults` what a test can make go wrong,
and :mod:`.cluster` several brokers.
"""

from .broker import Broker
from .cluster import BrokerCluster
from .faults import Fault, Faults
from .refusal import Refused

__all__ = ["Broker", "BrokerCluster", "Fault", "Faults", "Refused"]
