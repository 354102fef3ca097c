"""Turns at requests without records."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from shoal.gateway.working import LARGE_BYTES, waiting, working
from shoal.protocol.apis import ApiKey
from tests.broker.wire import PATIENCE_S, Wire
from tests.gateway.behind import Behind, old_request

Connect = Callable[[str], Wire]


def in_another_thread(work: Callable[[], object]) -> threading.Event:
    done = threading.Event()

    def run() -> None:
        work()
        done.set()

    threading.Thread(target=run, daemon=True).start()
    return done


def work_on(size: int) -> None:
    with working(size):
        pass


def test_large_requests_share_one_turn_and_small_ones_others() -> None:
    with working(LARGE_BYTES + 1):
        large = in_another_thread(lambda: work_on(LARGE_BYTES + 1))
        assert in_another_thread(lambda: work_on(LARGE_BYTES)).wait(PATIENCE_S)
        assert not large.is_set()
    assert large.wait(PATIENCE_S)


def test_turn_is_released_while_waiting_for_a_broker() -> None:
    with working(LARGE_BYTES + 1):
        with waiting():
            assert in_another_thread(lambda: work_on(LARGE_BYTES + 1)).wait(PATIENCE_S)
        other = in_another_thread(lambda: work_on(LARGE_BYTES + 1))
        assert not other.is_set()
    assert other.wait(PATIENCE_S)


def test_turn_is_released_after_a_broker_error() -> None:
    with pytest.raises(OSError, match="gone"), working(LARGE_BYTES + 1), waiting():
        raise OSError("gone")
    assert in_another_thread(lambda: work_on(LARGE_BYTES + 1)).wait(PATIENCE_S)


def test_large_request_alone_waits_for_a_turn(behind: Behind, topic: str, connect: Connect) -> None:
    large, small = (connect(behind.address(topic)) for _ in range(2))
    partitions = [(0, -1, 1)] * (LARGE_BYTES // 16)
    with working(LARGE_BYTES + 1):
        large.send_bytes(old_request(ApiKey.LIST_OFFSETS, 0, -1, [(topic, partitions)]))
        small.send_bytes(old_request(ApiKey.LIST_OFFSETS, 0, -1, [(topic, [(0, -1, 1)])]))
        assert small.receive_frame() is not None
        large.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            large.receive_frame()
    large.socket.settimeout(PATIENCE_S)
    assert large.receive_frame() is not None


def test_request_without_records_beyond_the_limit_is_refused(
    behind: Behind, topic: str, connect: Connect
) -> None:
    for count, is_served in ((30_000, True), (33_000, False)):
        wire = connect(behind.address(topic))
        partitions = [(partition, -1, 1) for partition in range(count)]
        wire.send_bytes(old_request(ApiKey.LIST_OFFSETS, 0, -1, [(topic, partitions)]))
        assert (wire.receive_frame() is not None) == is_served
