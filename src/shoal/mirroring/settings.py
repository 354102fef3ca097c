"""What a task has to know to copy; travels from the driver to the tasks."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ..client.config import ClientConfig
from ..errors import ConfigError
from .incidents import Delivery, IncidentKind

__all__ = ["DEFAULT_MAX_DECOMPRESSED_BYTES", "CopySettings", "MultiBatch"]

#: Batches are of 1 MiB as brokers come, and few shrink to less than a fiftieth.
DEFAULT_MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024


class MultiBatch(enum.Enum):
    """Whether several batches of a partition go into one Produce request; the value is the option's."""

    AUTO = "auto"
    OFF = "off"
    REQUIRED = "required"

    @classmethod
    def parse(cls, option: str, text: str) -> MultiBatch:
        """
        Raises:
            ConfigError: It is none of the three; names the option.
        """
        try:
            return cls(text)
        except ValueError:
            choices = ", ".join(each.value for each in cls)
            raise ConfigError(f"{option} {text}: none of {choices}") from None


@dataclass(frozen=True, slots=True)
class CopySettings:
    """
    Attributes:
        source: How to reach the source cluster; its isolation level decides
            what is copied of transactions.
        destination: How to reach the destination cluster.
        group: The consumer group on the source cluster that holds the pairs.
        rules: A digest of what decides what is copied; stored in the pairs.
        fetch_buffer_bytes: The one big allocation of a task.
        commit_interval_ms: How often a task commits what was acknowledged.
        allow_nonempty: Begin in a destination partition that holds records
            which are not the source's.
        producer_id_expiration_ms: After this long without a newer batch the
            destination's brokers forget a producer id (broker configuration
            ``producer.id.expiration.ms``).
        delivery: What is promised of the destination partitions.
        continue_on: The kinds of incidents after which a partition goes on;
            the others stop it.
        keep_append_time: Decode batches of LogAppendTime, so that their
            records get the append time instead of their create times.
        max_decompressed_bytes: How large a batch that has to be decoded may
            become.
        multi_batch: Whether several batches of a partition go into one
            request, where the destination's brokers take them.
    """

    source: ClientConfig
    destination: ClientConfig
    group: str
    rules: str
    fetch_buffer_bytes: int = 16 * 1024 * 1024
    commit_interval_ms: int = 5_000
    allow_nonempty: bool = False
    producer_id_expiration_ms: int = 86_400_000
    delivery: Delivery = Delivery.EXACTLY_ONCE
    continue_on: frozenset[IncidentKind] = frozenset()
    keep_append_time: bool = False
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    multi_batch: MultiBatch = MultiBatch.AUTO
