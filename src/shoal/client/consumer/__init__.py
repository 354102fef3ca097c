"""
The raw consumer.

:mod:`.consumer` is what is called, :mod:`.fetching` asks the leaders,
:mod:`.records` makes records of what they send, :mod:`.partitions` says where
in each the consumer is, and :mod:`.settings` what it was told.
"""

from .consumer import RawConsumer
from .records import AnyRecord, ConsumerRecord, RawRecord, TimestampType

__all__ = ["AnyRecord", "ConsumerRecord", "RawConsumer", "RawRecord", "TimestampType"]
