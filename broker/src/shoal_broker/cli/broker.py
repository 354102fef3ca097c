"""``shoal-broker``: an embedded broker, to try things with."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence

from shoal.cli.options import add_output_options
from shoal.cli.output import print_json
from shoal.cli.parser import Parser
from shoal.cli.program import run_program
from shoal.cli.serving import allow_many_files
from shoal.errors import ConfigError
from shoal.exit_codes import EXIT_DONE
from shoal.mirroring.driver.signals import Signals
from shoal.option_values import parse_key_values, parse_listen

__all__ = ["main", "make_parser", "run"]

_DEFAULT_LISTEN = "127.0.0.1:9092"

#: As in Kafka. In tests, a typing error must not create a topic.
_DEFAULTS = {"auto.create.topics.enable": "true"}


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = Parser(
        prog="shoal-broker",
        description="Run a Kafka broker in this process until SIGINT or SIGTERM, for demos, tests and "
        "development. Do not use it in production: it is a single broker without users, encryption or "
        "tuning for load. It keeps everything in memory. Exit codes: 0 ended by a signal; 1 failed; 2 usage "
        "or configuration.",
        epilog="Example:\n\n  shoal-broker --listen 127.0.0.1:9092 --config num.partitions=3",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default=_DEFAULT_LISTEN,
        help="a loopback address to listen on and to advertise. Port 0 takes a free port "
        f"(default: {_DEFAULT_LISTEN})",
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a broker setting by Kafka's name, as num.partitions=3. May be repeated, and the last value "
        "wins",
    )
    add_output_options(parser, exit_code_of_interrupt=0)
    parser.set_defaults(run=run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, or with the process's own; return the exit code."""
    return run_program(make_parser(), sys.argv[1:] if argv is None else argv)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal; return the exit code."""
    from .. import Broker

    host, port = parse_listen("--listen", args.listen)
    allow_many_files()
    broker = Broker(host, port, config={**_DEFAULTS, **dict(parse_key_values("--config", args.config))})
    with Signals(threading.Event(), on_retry=lambda: None) as signals:
        try:
            broker.start()
        except OSError as error:
            raise ConfigError(f"--listen {args.listen}: {error.strerror or error}") from error
        try:
            _announce(broker.bootstrap, as_json=args.json)
            signals.wait()
        finally:
            broker.stop()
    return EXIT_DONE


def _announce(bootstrap: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"type": "broker", "bootstrap": bootstrap})
    else:
        print(f"listening on {bootstrap}", flush=True)
