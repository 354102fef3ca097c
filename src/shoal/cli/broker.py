"""``shoal broker``: an embedded broker, to try things with."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..client.connection import Address, parse_bootstrap
from ..errors import ConfigError
from .options import Subparsers, add_output_options, parse_key_values
from .report import print_json

__all__ = ["add_parser", "run"]

_DEFAULT_LISTEN = "127.0.0.1:9092"


def add_parser(verbs: Subparsers) -> None:
    parser = verbs.add_parser(
        "broker",
        help="run an embedded broker",
        description="Run a Kafka broker in this process, in memory, for tests and trials, until SIGINT or "
        "SIGTERM. Everything in it is gone then.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--listen",
        default=_DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help=f"a loopback address; port 0 takes a free one (default: {_DEFAULT_LISTEN})",
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a broker setting by Kafka's name, as auto.create.topics.enable=true; may be repeated",
    )
    add_output_options(parser, exit_code_of_interrupt=0)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from ..broker import Broker

    host, port = _parse_listen(args.listen)
    broker = Broker(host, port, config=parse_key_values("--config", args.config))
    with _signals_held() as wait_for_signal:
        try:
            broker.start()
        except OSError as error:
            raise ConfigError(f"--listen {args.listen}: {error.strerror or error}") from error
        try:
            _announce(broker.bootstrap, as_json=args.json)
            wait_for_signal()
        finally:
            broker.stop()
    return 0


@contextmanager
def _signals_held() -> Iterator[Callable[[], object]]:
    """Hold SIGINT and SIGTERM back, also in threads that are started meanwhile, until they are waited for."""
    signals = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield lambda: signal.sigwait(signals)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _announce(bootstrap: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"type": "broker", "bootstrap": bootstrap})
    else:
        print(f"listening on {bootstrap}", flush=True)


def _parse_listen(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if colon and port == "0" and host:
        return Address(host.removeprefix("[").removesuffix("]"), 0)
    try:
        (address,) = parse_bootstrap(text)
    except ValueError:
        raise ConfigError(f"--listen {text}: not HOST:PORT") from None
    return address
