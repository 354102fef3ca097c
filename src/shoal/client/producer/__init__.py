"""
The raw producer.

:mod:`.producer` is what is called, :mod:`.accumulator` has what is not
acknowledged yet, :mod:`.sender` sends it, :mod:`.outcomes` are what becomes of
it, :mod:`.batches` are what is sent, :mod:`.partitioner` deals records, and
:mod:`.settings` is what it was told.
"""

from .batches import RecordMetadata
from .producer import RawProducer

__all__ = ["RawProducer", "RecordMetadata"]
