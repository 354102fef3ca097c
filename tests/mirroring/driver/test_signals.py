"""SIGINT and SIGTERM end a mirror, SIGUSR1 tries stopped partitions again; former handlers come back."""

from __future__ import annotations

import signal
import threading

import pytest

from shoal.errors import Stopped
from shoal.mirroring.driver.signals import Signals
from tests.world.waiting import wait_until


def signals(stop: threading.Event | None = None) -> Signals:
    return Signals(stop or threading.Event(), on_retry=lambda: None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ending_signal_sets_the_event_with_its_name(number: signal.Signals) -> None:
    stop = threading.Event()
    with signals(stop) as handled:
        signal.raise_signal(number)
        wait_until(stop.is_set)
        assert handled.received == number.name


@pytest.mark.timeout(10)
def test_wait_ends_if_another_thread_got_the_signal() -> None:
    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if sender.ident is None:
                sender.start()
            return super().wait(timeout)

    def send() -> None:
        # Until the main thread waits. If it does not yet, the test passes without a proof.
        threading.Event().wait(0.05)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    sender = threading.Thread(target=send)
    with signals(Stop()) as handled:
        handled.wait()
    assert handled.received == "SIGTERM"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signal_within_a_wait_for_its_event_is_no_deadlock(number: signal.Signals) -> None:
    """The main thread holds the lock of an event before and behind its wait."""
    lock = threading.Lock()

    class Locked(threading.Event):
        def set(self) -> None:
            with lock:
                super().set()

    done = Locked()
    with Signals(done, done.set):
        with lock:
            signal.raise_signal(number)
        wait_until(done.is_set)


def test_sigusr1_requests_a_retry() -> None:
    stop, asked = threading.Event(), threading.Event()
    with Signals(stop, asked.set) as handled:
        signal.raise_signal(signal.SIGUSR1)
        wait_until(asked.is_set)
    assert (stop.is_set(), handled.received) == (False, None)


def test_previous_handlers_are_restored() -> None:
    handled = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in handled]
    with signals():
        assert all(signal.getsignal(number) != former for number, former in zip(handled, before, strict=True))
    assert [signal.getsignal(number) for number in handled] == before


def test_signal_while_interrupting_raises_stopped() -> None:
    with signals() as handled, pytest.raises(Stopped), handled.interrupting():
        signal.raise_signal(signal.SIGTERM)
    assert handled.received == "SIGTERM"


def test_earlier_signal_raises_stopped_at_the_next_start() -> None:
    with signals() as handled:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(Stopped), handled.interrupting():
            pytest.fail("nothing begins")


def test_thread_other_than_the_main_one_handles_no_signals() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[object] = []

    def run() -> None:
        with signals():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]
