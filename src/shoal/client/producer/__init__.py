"""
The raw producer.

Users call :mod:`.producer`. :mod:`.queues` holds the :mod:`.batches` that are not acknowledged yet. The
thread of :mod:`.sender` gives them to their :mod:`.leader`. :mod:`.settings` reads the properties.
"""

from .batches import RecordMetadata
from .producer import RawProducer

__all__ = ["RawProducer", "RecordMetadata"]
