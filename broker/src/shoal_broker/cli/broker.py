"""``shoal-broker``: an embedded broker, to try things with."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from shoal.cli.conversion_metrics import add_metrics_option, serve_metrics
from shoal.cli.options import add_output_options, parse_key_values
from shoal.cli.output import print_json, say, warn
from shoal.cli.parser import Parser
from shoal.cli.program import run_program
from shoal.cli.serving import allow_many_files, give_freed_memory_back, signals_held
from shoal.errors import ConfigError
from shoal.exit_codes import EXIT_DONE, EXIT_FAILED
from shoal.mirroring.model.option_values import parse_listen
from shoal.properties_file import read_properties_file

from .server_properties import ServerProperties, read_server_properties

__all__ = ["main", "make_parser", "run"]

_DEFAULT_LISTEN = "127.0.0.1:9092"
_NODE_ID = 1

#: As in Kafka. In tests, a typing error must not create a topic.
_DEFAULTS = {"auto.create.topics.enable": "true"}


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = Parser(
        prog="shoal-broker",
        description="Run a Kafka broker in this process until SIGINT or SIGTERM, for demos, tests and "
        "development. Do not use it in production: it is a single broker without users, encryption or "
        "tuning for load. Exit codes: 0 ended by a signal; 1 failed, also if the data directory failed; 2 "
        "usage or configuration.",
        epilog="Example:\n\n  shoal-broker --listen 127.0.0.1:9092 --data ./data --config num.partitions=3",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="a loopback address to listen on and to advertise. Port 0 takes a free port "
        f"(default: the file's listeners, or {_DEFAULT_LISTEN})",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="directory of topics, records and group offsets, in Kafka's own segment files (default: "
        "the file's log.dirs. Without either, the broker keeps them in memory and loses them at its end)",
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="FILE|KEY=VALUE",
        help="a Java server.properties, or one broker setting by Kafka's name, as num.partitions=3. May "
        "be repeated, and the last value wins",
    )
    parser.add_argument(
        "--allow-any-address",
        action="store_true",
        help="allow --listen to use an address that other machines can reach. Every client there can read, "
        "write and delete everything",
    )
    add_metrics_option(parser)
    add_output_options(parser, exit_code_of_interrupt=0)
    parser.set_defaults(run=run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, or with the process's own; return the exit code."""
    return run_program(make_parser(), sys.argv[1:] if argv is None else argv)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal; return the exit code."""
    from ..broker import Broker

    wanted = _read_config(args.config)
    listen = args.listen or wanted.listen or _DEFAULT_LISTEN
    host, port = parse_listen("listen", listen)
    allow_many_files()
    give_freed_memory_back()
    metrics = serve_metrics(args)
    broker = Broker(
        host,
        port,
        config={**_DEFAULTS, **wanted.settings},
        node_id=wanted.node_id or _NODE_ID,
        data=args.data or wanted.data,
        allow_any_address=args.allow_any_address,
    )
    with signals_held() as signals:
        broker.when_halted(signals.wake)
        try:
            broker.start()
        except OSError as error:
            raise ConfigError(f"--listen {listen}: {error.strerror or error}") from error
        try:
            _announce(broker.bootstrap, as_json=args.json)
            with metrics:
                signals.wait()
        finally:
            broker.stop()
    if broker.failure is not None:
        say(f"{broker.failure}. Replace the disk, or start with another --data")
        return EXIT_FAILED
    return EXIT_DONE


def _read_config(texts: list[str]) -> ServerProperties:
    """Read files and single settings, in their order."""
    from ..config import BROKER_SETTINGS

    together = ServerProperties({})
    for text in texts:
        if "=" in text and not Path(text).exists():
            together = together.updated(ServerProperties(parse_key_values("--config", [text])))
            continue
        if not Path(text).exists():
            raise ConfigError(f"--config {text!r} is neither KEY=VALUE nor a file")
        found = read_server_properties(
            Path(text), read_properties_file("--config", text), known=BROKER_SETTINGS
        )
        if found.ignored:
            warn(f"{text}: the embedded broker ignores {', '.join(found.ignored)}")
        together = together.updated(found)
    return together


def _announce(bootstrap: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"type": "broker", "bootstrap": bootstrap})
    else:
        print(f"listening on {bootstrap}", flush=True)
