"""Consumers of a group that stop somewhere, and go on elsewhere: confluent-kafka's and Java's."""

import subprocess
import time
from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

from confluent_kafka import Consumer, KafkaError

from rig.jars import tool_command

__all__ = ["ConsumeFailed", "GroupProtocol", "consume", "consume_by_java"]

GroupProtocol: TypeAlias = Literal["classic", "consumer"]
"""Kafka's ``group.protocol``; ``consumer`` is KIP-848."""

_SILENCE_TIMEOUT_S = 90.0

_SILENT = "-Dorg.apache.logging.log4j.level=OFF"


class ConsumeFailed(Exception):
    """A consumer met an error, or read nothing for a minute and a half."""


def consume(
    bootstrap: str,
    group: str,
    topics: Collection[str],
    *,
    protocol: GroupProtocol = "classic",
    most: int | None = None,
    reset: str = "error",
) -> dict[tuple[str, int], list[bytes]]:
    """Read as a member of a group, commit what was read, and leave.

    Args:
        bootstrap: The cluster.
        group: The group's name.
        topics: The topics to subscribe to.
        protocol: The protocol of the group's members.
        most: Stop after this number of records; None reads to the ends of all partitions.
        reset: ``auto.offset.reset``: an ``error`` shows a partition without a committed offset.

    Returns:
        The values by topic and partition, in order.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": reset,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.subscribe(list(topics))
    values: dict[tuple[str, int], list[bytes]] = {}
    ended: set[tuple[str, int]] = set()
    heard = time.monotonic()
    count = 0
    try:
        while count != most:
            message = consumer.poll(0.5)
            if message is None:
                if time.monotonic() - heard > _SILENCE_TIMEOUT_S:
                    raise ConsumeFailed(f"group {group} read nothing; ends seen: {sorted(ended)}")
                continue
            heard = time.monotonic()
            error = message.error()
            place = str(message.topic()), message.partition() or 0
            if error is None:
                values.setdefault(place, []).append(message.value() or b"")
                consumer.store_offsets(message)
                count += 1
                ended.discard(place)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(place)
                assigned = {(each.topic, each.partition) for each in consumer.assignment()}
                if most is None and assigned and assigned <= ended:
                    break
            else:
                raise ConsumeFailed(f"group {group}: {error}")
        if count:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return values


def consume_by_java(
    bootstrap: str,
    group: str,
    topic: str,
    *,
    protocol: GroupProtocol = "classic",
    most: int | None = None,
    reset: str = "none",
) -> list[bytes]:
    """Read as Kafka's console consumer, which commits what it printed; values must be single lines.

    Args:
        bootstrap: The cluster.
        group: The group's name.
        topic: The topic to subscribe to.
        protocol: The protocol of the group's members.
        most: Stop after this number of records; None stops after 15 s without one.
        reset: ``auto.offset.reset``.
    """
    tool = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    properties = {
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": reset,
        "isolation.level": "read_committed",
    }
    options: Sequence[str] = [
        *("--bootstrap-server", bootstrap, "--topic", topic, "--timeout-ms", "15000"),
        *(word for name, value in properties.items() for word in ("--command-property", f"{name}={value}")),
        *(("--max-messages", f"{most}") if most is not None else ()),
    ]
    result = subprocess.run(
        # Log4j's default configuration prints errors to stdout, such as the end of the time.
        [*tool_command(tool, _SILENT), *options],
        capture_output=True,
        check=False,
    )
    values = result.stdout.splitlines()
    if most is not None and len(values) != most:
        raise ConsumeFailed(f"console consumer of {group}: {len(values)} records\n{result.stderr.decode()}")
    return values
