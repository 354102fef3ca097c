"""
The raw producer.

Users call :mod:`.producer`. :mod:`.queues` holds the :mod:`.batches` that are not acknowledged yet.
:mod:`.sender` sends them through a :mod:`.lane` to each leader, :mod:`.outcomes` takes the answers, and
:mod:`.topics` looks for leaders. :mod:`.settings` reads the properties.
"""

from .batches import RecordMetadata
from .producer import RawProducer

__all__ = ["RawProducer", "RecordMetadata"]
