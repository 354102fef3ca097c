"""A copy loop on confluent-kafka (librdkafka): the usual mirror in Python without shoal.

Idempotent, batches of up to 512 KB, the topic's own codec.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.mover import Command, Job
from rig import create_topic

__all__ = ["ConfluentLoop", "read_whole"]


@dataclass(frozen=True)
class ConfluentLoop:
    """This module as a command."""

    name: str = "confluent-kafka loop"

    @contextmanager
    def command(self, job: Job) -> Iterator[Command]:
        create_topic(job.destination, job.copy, job.partitions)
        places = [job.reads_from, job.writes_to, job.topic, job.copy, job.codec]
        tls = [] if job.authority is None else ["--authority", str(job.authority)]
        yield Command([sys.executable, "-m", "bench.confluent_loop", *places, *tls], job.copy)


def copy(source: str, destination: str, topic: str, to: str, codec: str, authority: str | None) -> None:
    """Copy a topic from its beginning to its end, over TLS if there is an authority's file."""
    tls = {} if authority is None else {"security.protocol": "ssl", "ssl.ca.location": authority}
    producer = Producer(
        {
            "bootstrap.servers": destination,
            "enable.idempotence": True,
            "compression.codec": codec,
            "batch.size": 512 * 1024,
            "linger.ms": 100,
            "queue.buffering.max.messages": 100_000,
            "delivery.report.only.error": True,
            **tls,
        }
    )
    for messages in read_whole(source, topic, tls):
        for message in messages:
            _send(producer, to, message)
        producer.poll(0)
    if unsent := producer.flush(120):
        raise SystemExit(f"{unsent} records were not acknowledged")


def read_whole(source: str, topic: str, options: Mapping[str, str]) -> Iterator[list[Message]]:
    """Yield the messages of a topic from its beginning to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": source,
            "group.id": "bench-loop",  # required by librdkafka, never joined
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            # The last offset of a partition may be a transaction's marker, and is no message then.
            "enable.partition.eof": True,
            **options,
        }
    )
    unread = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in sorted(unread)])
    while unread:
        messages = []
        for message in consumer.consume(1000, timeout=1):
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
            else:
                raise SystemExit(f"{topic}: {error}")
        yield messages
    consumer.close()


def _send(producer: Producer, topic: str, message: Message) -> None:
    while True:
        try:
            producer.produce(
                topic,
                message.value(),
                message.key(),
                partition=message.partition() or 0,
                timestamp=message.timestamp()[1],
                headers=message.headers() or [],
                on_delivery=_delivered,
            )
            return
        except BufferError:
            producer.poll(0.1)


def _delivered(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise SystemExit(f"{message.topic()}: {error}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for place in ("source", "destination", "topic", "to", "codec"):
        parser.add_argument(place)
    parser.add_argument("--authority")
    copy(**vars(parser.parse_args()))
