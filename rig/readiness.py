"""Wait until a broker answers, and until it serves the partitions that it leads."""

import subprocess
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from rig.process import tail
from rig.wait import TimedOut, wait_until

__all__ = ["KafkaDidNotStart", "await_broker", "await_leadership"]


_STARTS_S = 120


class KafkaDidNotStart(Exception):
    """A broker ended or timed out before it answered; the text has the end of its log."""


def await_broker(
    process: subprocess.Popen[bytes],
    node_id: int,
    address: str,
    log: Path,
    brokers: int = 1,
) -> None:
    """Wait until a broker lists itself and the other brokers in its Metadata.

    Args:
        brokers: Number of brokers to wait for.

    Raises:
        KafkaDidNotStart: The broker ended, or timed out; the text has the end of its log.
    """
    client = AdminClient(
        {
            "bootstrap.servers": address,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )

    def answers() -> bool:
        if process.poll() is not None:
            raise KafkaDidNotStart(f"broker {node_id} ended with {process.returncode}:\n{tail(log)}")
        try:
            found = client.list_topics(timeout=1).brokers
        except KafkaException:
            return False
        return node_id in found and len(found) >= brokers

    try:
        wait_until(answers, f"Metadata of broker {node_id}", _STARTS_S)
    except TimedOut as error:
        raise KafkaDidNotStart(f"{error}:\n{tail(log)}") from error


def await_leadership(node_id: int, address: str) -> None:
    """Wait until a broker serves the partitions that it leads by its metadata.

    The broker knows from metadata that it leads a partition before it can serve it.
    """
    client = AdminClient({"bootstrap.servers": address, "log_level": 0})

    def answers() -> bool:
        try:
            topics = client.list_topics(timeout=10).topics.values()
            led = {
                TopicPartition(topic.topic, number): OffsetSpec.latest()
                for topic in topics
                for number, partition in topic.partitions.items()
                if partition.leader == node_id
            }
            asked = client.list_offsets(led, request_timeout=10) if led else {}
            return all(answer.result().offset >= 0 for answer in asked.values())
        except KafkaException:
            return False

    wait_until(answers, f"broker {node_id} to serve the partitions that it leads", 60)
