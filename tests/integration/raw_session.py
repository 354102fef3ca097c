"""Raw clients that stay logged in for several lives of their login."""

import time
from collections.abc import Mapping

from shoal import RawConsumer, RawProducer, RawRecord

__all__ = ["send_and_read"]


def send_and_read(login: Mapping[str, str], topic: str, seconds: float) -> None:
    """Send batches and read them again for a while, by one producer and one consumer.

    Args:
        login: Properties of both clients.
        topic: A new topic.
        seconds: Longer than logins last.
    """
    reading = {"group.id": topic, "fetch.raw.bytes": True, "auto.offset.reset": "earliest"}
    sent = read = 0
    deadline = time.monotonic() + seconds
    with RawProducer(login) as producer, RawConsumer({**login, **reading}) as consumer:
        consumer.subscribe([topic])
        while time.monotonic() < deadline or read < sent or not sent:
            if read == sent:
                futures = [producer.send(topic, b"%0100d" % sent) for _ in range(100)]
                sent += len(futures)
                producer.flush()
                assert all(future.result().offset >= 0 for future in futures)
            found = consumer.poll(0.05)
            read += sum(record.record_count for record in found if isinstance(record, RawRecord))
        consumer.commit()
    assert read == sent
