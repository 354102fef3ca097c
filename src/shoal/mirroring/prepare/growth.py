"""The two requests that change a copy, with the errors that an operator can act on."""

from __future__ import annotations

from ...client.admin import NewTopic, create_partitions
from ...client.cluster import Cluster, patiently
from ...error_codes import ErrorCode
from ...errors import BrokerError, ConfigError, ShoalError

__all__ = ["creation_error", "grow_topic"]


def creation_error(error: BrokerError, topic: NewTopic) -> ShoalError:
    """Return the error to raise if a broker refuses to create a topic, or to validate it."""
    if error.retriable:
        return error
    return ConfigError(
        f"{error}. Allow it, or create the topic yourself with "
        f"{topic.partitions} partitions and compression.type=producer"
    )


def grow_topic(
    topic: str,
    present: int,
    wanted: int,
    destination: Cluster,
    patience_s: float,
    *,
    validate_only: bool = False,
) -> None:
    """
    Add partitions to a topic; it is no error if another process just did.

    Args:
        topic: Its name at the destination.
        present: Its partitions now.
        wanted: Its partitions afterwards.
        patience_s: Patience with transient errors.
        validate_only: Whether the destination only checks that it could.

    Raises:
        ConfigError: The destination refuses.
        ShoalError: The destination does not respond.

    """
    try:
        patiently(
            lambda: create_partitions(destination, topic, wanted, validate_only=validate_only),
            patience_s=patience_s,
        )
    except BrokerError as error:
        if error.code == ErrorCode.INVALID_PARTITIONS:
            return
        if error.retriable:
            raise
        raise ConfigError(
            f"{error}. Topic {topic} has {present} partitions and the source {wanted}: allow ALTER on it, or "
            f"add the missing ones yourself (kafka-topics --alter --partitions {wanted})"
        ) from error
