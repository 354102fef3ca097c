"""An honest client that returns repeatedly, and measures the time of its requests."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from tests.batches import batch
from tests.broker.wire import Wire

from .attackers import LogIn

__all__ = ["PROBED_TOPIC", "Probe"]

#: Exists while it asks.
PROBED_TOPIC = "probe"
_EVERY_S = 0.5


class Probe:
    """Connects, fetches metadata, writes a record and reads it, twice a second; a context manager.

    Attributes:
        served: Number of successful rounds.
        longest_s: The longest time of a round.
        problems: Failures.
    """

    def __init__(self, address: str, log_in: LogIn | None = None) -> None:
        self._address = address
        self._log_in = log_in
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.served = 0
        self.longest_s = 0.0
        self.problems: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _connected(self) -> Wire:
        wire = Wire(self._address, "honest")
        if self._log_in is not None:
            self._log_in(wire.socket)
        return wire

    def _run(self) -> None:
        is_ended = False  # at least one round
        while not is_ended:
            began = time.monotonic()
            try:
                self._look()
            except Exception as error:
                took_s = time.monotonic() - began
                self.problems.append(f"an honest client, {took_s:.1f} s: {type(error).__name__}: {error}")
            else:
                self.served += 1
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            is_ended = self._ended.wait(_EVERY_S)

    def _look(self) -> None:
        with self._connected() as wire:
            assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers
            # Retention could delete an older one before it is read.
            written = batch(1, base_timestamp=int(time.time() * 1000))
            appended = wire.produce(PROBED_TOPIC, written, version=9)
            assert appended.error_code == ErrorCode.NONE, ErrorCode(appended.error_code)
            fetched = wire.fetch(PROBED_TOPIC, appended.base_offset)
            assert fetched.error_code == ErrorCode.NONE, ErrorCode(fetched.error_code)
            assert len(fetched.record_set) == len(written)
