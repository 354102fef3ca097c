"""The memory of the raw producer: its limit, and the batches that wait in it."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import Future

import pytest

from shoal import RecordMetadata
from shoal.errors import BrokerError, BufferFull, DeliveryTimedOut
from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from tests.client.producer.produced import producer, values
from tests.world import batches
from tests.world.faults import answers
from tests.world.waiting import wait_until


@pytest.mark.parametrize("send_raw_bytes", [False, True])
def test_full_buffer_blocks_send_and_then_raises(broker: Broker, send_raw_bytes: bool) -> None:
    batch = bytes(batches.batch([b"x" * 1000], base_timestamp=int(time.time() * 1000)))
    options = {"send_raw_bytes": send_raw_bytes, "buffer_memory": 10_000, "max_block_ms": 500}
    acknowledge = threading.Event()
    with producer(broker, **options) as ours:

        def send() -> Future[RecordMetadata]:
            return ours.send("topic", batch if send_raw_bytes else b"x" * 1000, partition=0)

        send().result(10)
        answers(broker, ApiKey.PRODUCE, lambda response: acknowledge.wait(20) and response)
        futures = []
        began_at = time.monotonic()
        refused: list[BufferFull] = []
        while not refused:
            try:
                futures.append(send())
            except BufferFull as error:
                refused.append(error)
        assert re.match(r".*\b1\d\d\d bytes\b.*max\.block\.ms=500", str(refused[0]))
        assert time.monotonic() - began_at > 0.45
        assert 5 <= len(futures) <= 10
        acknowledge.set()
        assert ours.flush(10)
        # Acknowledged batches free their memory, and waiting senders receive it.
        more = [send() for _ in range(50)]
        assert ours.flush(10)
        assert all(future.result().offset >= 0 for future in [*futures, *more])
        with pytest.raises(BufferFull, match=r"buffer\.memory=10000"):
            ours.send(
                "topic",
                bytes(batches.batch([b"x" * 20_000])) if send_raw_bytes else b"x" * 20_000,
                partition=0,
            )


def test_maximum_java_timeouts_are_accepted(broker: Broker) -> None:
    longest = 2**63 - 1
    with producer(broker, max_block_ms=longest, buffer_memory=2_000, delivery_timeout_ms=2**31 - 1) as ours:
        for _ in range(10):
            ours.send("topic", b"x" * 1000, partition=0)


def test_close_waits_for_all_records_or_its_timeout(broker: Broker) -> None:
    ours = producer(broker)
    future = ours.send("topic", b"x", partition=0)
    ours.close()
    ours.close()
    assert future.result(0).offset == 0
    with pytest.raises(ValueError, match=r"producer.*closed"):
        ours.partitions_for("topic")
    with pytest.raises(ValueError, match=r"producer.*closed"):
        ours.send("topic", b"x")
    ours = producer(broker)
    ours.send("topic", b"x", partition=0).result(10)
    broker.faults.add(ApiKey.PRODUCE, delay_s=600)
    future = ours.send("topic", b"x", partition=0)
    ours.close(0.2)  # a record of a producer that is open has two minutes
    error = future.exception(0)
    assert isinstance(error, DeliveryTimedOut)
    assert error.is_in_doubt


def test_callback_that_sends_does_not_deadlock(broker: Broker) -> None:
    with producer(broker) as ours:
        ours.send("topic", b"1", partition=0).add_done_callback(
            lambda _: ours.send("topic", b"2", partition=0)
        )
        wait_until(lambda: values(broker) == [b"1", b"2"])
        missing: Future[object] = Future()

        def send_nowhere(_: object) -> None:
            try:
                ours.send("topic", b"3", partition=9)
            except BrokerError as error:
                missing.set_result(error)

        ours.send("topic", b"3", partition=0).add_done_callback(send_nowhere)
        assert "it has 2 partitions" in str(missing.result(10))
