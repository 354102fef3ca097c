"""
Kafka in Python: one broker in memory, over real sockets.

For demos and tests, and to be read: it refuses what Kafka refuses, with
Kafka's error codes, in Kafka's order. It is not a production broker.

Where to look: :mod:`.server` has the sockets, :mod:`.dispatch` what happens to
a request, :mod:`.apis` one file per API, :mod:`.log` a partition,
:mod:`.validate` and :mod:`.producers` what a partition refuses,
:mod:`.topics`, :mod:`.config`, and :mod:`.faults` what a test can make go wrong.
"""

from .broker import Broker
from .faults import Fault, Faults
from .refusal import Refused

__all__ = ["Broker", "Fault", "Faults", "Refused"]
