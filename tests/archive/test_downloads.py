"""A process downloads few objects at a time, and each ends without a client."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from shoal.archive import downloads
from shoal.errors import BeingDownloaded
from tests.world.waiting import wait_until


class Reading:
    """A reading that lasts until it is released, or ended."""

    def __init__(self) -> None:
        self.begun = self.closed = 0
        self.under_way: set[threading.Thread] = set()
        self.released = threading.Event()

    def __call__(self, check: Callable[[], None]) -> Reading:
        self.begun += 1
        self.under_way.add(threading.current_thread())
        try:
            while not self.released.wait(0.01):
                check()
        finally:
            self.under_way.remove(threading.current_thread())
        return self

    def close(self) -> None:
        self.closed += 1


def test_downloads_are_few_at_a_time_and_end_without_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "UNASKED_S", 0.5)
    reading = Reading()
    told = [downloads.begin(f"s3://few/{number}", reading) for number in range(downloads.MOST_AT_ONCE + 1)]
    assert str(told[0]) == "s3://few/0: it is being downloaded"
    assert str(told[-1]) == f"s3://few/{downloads.MOST_AT_ONCE}: it is downloaded after others"
    wait_until(lambda: reading.begun == downloads.MOST_AT_ONCE)
    wait_until(lambda: not reading.under_way)
    assert reading.closed == 0


def test_later_request_joins_a_download_and_takes_its_object() -> None:
    reading = Reading()
    for _ in range(3):
        with pytest.raises(BeingDownloaded):
            downloads.take("s3://joined/0", reading)
    reading.released.set()
    downloads.wait_for_any(["s3://joined/0"], 10.0)
    assert downloads.take("s3://joined/0", reading) is reading
    assert reading.begun == 1


def test_object_that_no_client_takes_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "UNASKED_S", 0.2)
    reading = Reading()
    reading.released.set()
    downloads.begin("s3://left/0", reading)
    wait_until(lambda: reading.closed == 1)
