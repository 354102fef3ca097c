"""The two requests that change a copy, with the errors that an operator can act on."""

from __future__ import annotations

from ...client.admin import NewTopic, create_partitions
from ...client.cluster import Cluster
from ...error_codes import ErrorCode
from ...errors import BrokerError, ConfigError, ShoalError
from .changes import PreparedTopic

__all__ = ["creation_error", "grow_topic"]


def creation_error(error: BrokerError, topic: NewTopic) -> ShoalError:
    """Return the error to raise if a broker refuses to create a topic, or to validate it."""
    if error.retriable:
        return error
    return ConfigError(
        f"{error}. Allow it, or create the topic yourself with "
        f"{topic.partitions} partitions and compression.type=producer"
    )


def grow_topic(topic: PreparedTopic, destination: Cluster, *, validate_only: bool = False) -> None:
    """
    Add the missing partitions to a copy; it is no error if another process just did.

    Args:
        validate_only: Whether the destination only checks that it could.

    Raises:
        ConfigError: The destination refuses.
        ShoalError: The destination does not respond.

    """
    copy, wanted = topic.destination, topic.partitions
    try:
        destination.patiently(
            lambda: create_partitions(destination, copy, wanted, validate_only=validate_only)
        )
    except BrokerError as error:
        if error.code == ErrorCode.INVALID_PARTITIONS:
            return
        if error.retriable:
            raise
        raise ConfigError(
            f"{error}. Topic {copy} has {topic.present_partitions} partitions and the source {wanted}: allow "
            f"ALTER on it, or add the missing ones yourself (kafka-topics --alter --partitions {wanted})"
        ) from error
