"""
Kafka in Python: one broker, over real sockets, with logs in memory or in Kafka's own files.

For demos, tests and development, and to be read: it refuses what Kafka
refuses, with Kafka's error codes, in Kafka's order. It is not a production
broker.

Where to look: :mod:`.serving.server` has the sockets, :mod:`.serving.dispatch` what happens to
a request, :mod:`.apis` one file per API, :mod:`.storage.log` a partition,
:mod:`.storage.segment` and :mod:`.storage.file_segment` where its bytes are, :mod:`.storage.validate`
and :mod:`.storage.producers` what it refuses, :mod:`.storage.multi_batch` KIP-712's half of
the broker, :mod:`.old_clients.message_sets` and :mod:`.old_clients.down_converted` what clients get
that Kafka 4 refuses, :mod:`.storage.data_directory` and :mod:`.storage.journal` what outlives a process,
:mod:`.topics`, :mod:`.config`, :mod:`.apis.faults` what a test can make go wrong,
and :mod:`.cluster` several brokers.
"""

from .api_error import Refused
from .apis.faults import Fault, Faults
from .broker import Broker
from .cluster import BrokerCluster

__all__ = ["Broker", "BrokerCluster", "Fault", "Faults", "Refused"]
