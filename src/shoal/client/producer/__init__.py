"""
The raw producer.

Users call :mod:`.producer`. :mod:`.accumulator` holds the :mod:`.batches` that are not acknowledged yet, and
:mod:`.sender` sends them. :mod:`.outcomes` decides after each response. :mod:`.partitioner` chooses
partitions, and :mod:`.settings` reads the properties.
"""

from .batches import RecordMetadata
from .producer import RawProducer

__all__ = ["RawProducer", "RecordMetadata"]
