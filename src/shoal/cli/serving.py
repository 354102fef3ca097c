"""What the verbs share that listen until a signal comes."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..client.connection import Address, parse_bootstrap
from ..errors import ConfigError

__all__ = ["allow_many_files", "parse_listen", "signals_held"]


def allow_many_files() -> None:
    """Segments are open files, and so are connections: the usual 1,024 would not go far."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def signals_held() -> Iterator[Callable[[], object]]:
    """Hold SIGINT and SIGTERM back, also in threads that are started meanwhile, until they are waited for."""
    signals = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield lambda: signal.sigwait(signals)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def parse_listen(text: str) -> Address:
    """
    Read ``HOST:PORT`` of ``--listen``; the port may be 0.

    Raises:
        ConfigError: It is none.

    """
    host, colon, port = text.rpartition(":")
    if colon and port == "0" and host:
        return Address(host.removeprefix("[").removesuffix("]"), 0)
    try:
        (address,) = parse_bootstrap(text)
    except ValueError:
        raise ConfigError(f"--listen {text}: not HOST:PORT") from None
    return address
