"""
The raw consumer.

:mod:`.consumer` is the public class, and :mod:`.settings` reads its properties.
:mod:`.fetching` fetches from the leaders, and :mod:`.records` decodes their answers. :mod:`.partitions` has
the partitions with the position in each, and :mod:`.commits` commits them.
"""

from .consumer import RawConsumer
from .records import AnyRecord, ConsumerRecord, RawRecord, TimestampType

__all__ = ["AnyRecord", "ConsumerRecord", "RawConsumer", "RawRecord", "TimestampType"]
