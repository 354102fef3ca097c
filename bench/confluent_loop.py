"""A copy loop on confluent-kafka (librdkafka): the usual mirror in Python without shoal.

Idempotent, batches of up to 512 KB, the topic's own codec.
"""

import argparse
import sys

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.mover import Job, PlainCommand

__all__ = ["CONFLUENT_LOOP"]


def _arguments(job: Job) -> list[str]:
    places = [job.source, job.destination, job.topic, job.copy, job.codec]
    return [sys.executable, "-m", "bench.confluent_loop", *places]


CONFLUENT_LOOP = PlainCommand("confluent-kafka loop", _arguments)


def copy(source: str, destination: str, topic: str, to: str, codec: str) -> None:
    """Copy a topic from its beginning up to the end offsets at the start."""
    consumer = Consumer(
        {
            "bootstrap.servers": source,
            "group.id": "confluent-loop",  # required by librdkafka, never joined
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": destination,
            "enable.idempotence": True,
            "compression.codec": codec,
            "batch.size": 512 * 1024,
            "linger.ms": 100,
            "queue.buffering.max.messages": 100_000,
            "delivery.report.only.error": True,
        }
    )
    unread = _assign(consumer, topic)
    while unread:
        for message in consumer.consume(1000, timeout=1):
            if (error := message.error()) is not None:
                raise SystemExit(f"{topic}: {error}")
            _send(producer, to, message)
            partition, offset = message.partition(), message.offset()
            if offset is not None and partition in unread and offset + 1 >= unread[partition]:
                del unread[partition]
        producer.poll(0)
    if unsent := producer.flush(120):
        raise SystemExit(f"{unsent} records were not acknowledged")
    consumer.close()


def _assign(consumer: Consumer, topic: str) -> dict[int, int]:
    """Assign all partitions from their beginning; return the end offsets of those with records."""
    partitions = sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in partitions}
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    return {p: end for p, end in ends.items() if end > 0}


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
    copy(**vars(parser.parse_args()))
