"""
Create the topics and partitions that the destination misses, and wait for their leaders.

Runs on the driver, before the first task; and again while the mirror runs, for new topics and partitions.
"""

from __future__ import annotations

from collections.abc import Callable

from ...client.admin import NewTopic, create_topic
from ...client.cluster import Cluster
from ...errors import BrokerError
from ...topic_partition import TopicPartition
from ..model.options import MirrorOptions
from .changes import Prepared, creation_error, grow_topic
from .inspect import inspect_topics

__all__ = ["prepare"]


def prepare(
    options: MirrorOptions,
    source: Cluster,
    destination: Cluster,
    *,
    forbids: bool = True,
    on_group: Callable[[str], object] = lambda _: None,
    on_create: Callable[[], object] = lambda: None,
    check: Callable[[Prepared], object] = lambda _: None,
) -> Prepared:
    """
    Inspect both clusters, and create the topics and partitions that the destination misses.

    Args:
        source: Its metadata of all topics is refreshed.
        destination: Its metadata of the copies is refreshed, leaders included.
        forbids: See :func:`.inspect.inspect_topics`.
        on_group: Called with the group as soon as it is known.
        on_create: Called before anything is created.
        check: Called with the changes before any of them is made; nothing is changed if it raises.

    Raises:
        ConfigError: Nothing is selected, or the destination cannot take it.
        BrokerError: A cluster refuses a request, or leaders were not elected in time.
        Disconnected: A cluster does not respond.

    """
    changes = inspect_topics(
        options,
        source,
        destination,
        forbids=forbids,
        creates=True,
        on_group=on_group,
    )
    check(changes)
    if any(topic.creation for topic in changes.topics.values()):
        on_create()
    for topic in changes.topics.values():
        if topic.creation:
            _create(topic.creation, destination)
        elif topic.added_partitions:
            grow_topic(topic, destination)
    _await_leaders(changes, destination)
    return changes


def _create(topic: NewTopic, destination: Cluster) -> None:
    """Create a topic; it is no error if another process just did."""
    try:
        destination.patiently(lambda: create_topic(destination, topic))
    except BrokerError as error:
        raise creation_error(error, topic) from error


def _await_leaders(changes: Prepared, destination: Cluster) -> None:
    """
    Wait until each new destination partition that a mirror writes to has a leader.

    An older partition without a leader does not delay the others: its task waits for it.

    """
    new = [
        TopicPartition(topic.destination, number)
        for topic in changes.topics.values()
        if topic.deleted is None
        for number in range(0 if topic.creation else topic.present_partitions, topic.partitions)
    ]

    def check() -> None:
        destination.refresh({topic.destination for topic in changes.topics.values()})
        for partition in new:
            destination.partition(partition)

    if new:
        destination.patiently(check)
