"""``shoal gateway``: a proxy for clients that Kafka 4 no longer supports."""

from __future__ import annotations

import argparse
import logging
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ConfigError
from ..gateway.settings import GatewaySettings
from ..mirroring.model.option_values import parse_listen
from ..printable import printable_lines
from .conversion_metrics import add_metrics_option, serve_metrics
from .options import Subparsers, add_output_options, parse_cluster
from .output import print_json, say, warn
from .serving import allow_many_files, give_freed_memory_back, signals_held

if TYPE_CHECKING:
    from ..client.config import ClientConfig
    from ..gateway.gateway import Gateway
    from ..gateway.server_tls import TlsFiles

__all__ = ["add_parser", "parse", "run"]

_DEFAULT_LISTEN = "127.0.0.1:9092"

_DEFAULTS = {each.name: each.default for each in fields(GatewaySettings)}

#: One id, or a range; none is larger than a port.
_BROKER_IDS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
_SMALLEST_BUFFER_BYTES = 64 * 1024


def add_parser(verbs: Subparsers) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "gateway",
        help="let old clients talk to a cluster of Kafka 4",
        description="Run a Kafka protocol proxy in front of a cluster until SIGINT or SIGTERM. The gateway "
        "passes on the versions that the cluster supports, translates those that Kafka 4 removed, and "
        "converts record sets to the old formats while it sends them.",
        epilog="Example:\n\n  shoal gateway --listen 127.0.0.1:9092 --upstream kafka-1:9092,kafka-2:9092",
        allow_abbrev=False,
    )
    _add_ends(parser.add_argument_group("addresses"))
    _add_rights(parser.add_argument_group("permissions of clients"))
    _add_tls(parser.add_argument_group("TLS on the listeners"))
    _add_logins(parser.add_argument_group("logins of clients"))
    limits = parser.add_argument_group("limits")
    for each in _LIMITS:
        each.add_to(limits)
    add_metrics_option(parser)
    add_output_options(parser, exit_code_of_interrupt=0)
    parser.set_defaults(run=run)


def _add_ends(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--listen",
        default=_DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help="a loopback address that clients bootstrap from. They find broker N of the cluster at port "
        f"PORT + 1 + N. Port 0 takes free ones for all (default: {_DEFAULT_LISTEN})",
    )
    group.add_argument(
        "--advertise", metavar="HOST", help="the host that clients connect to (default: --listen's host)"
    )
    group.add_argument(
        "--allow-any-address",
        action="store_true",
        help="allow --listen to use an address that other machines can reach. Clients there act as the "
        "upstream user, unless they log in by --sasl-pass-through",
    )
    group.add_argument(
        "--upstream", metavar="HOST:PORT[,HOST:PORT...]", help="bootstrap servers of the cluster"
    )
    group.add_argument(
        "--upstream-config",
        metavar="FILE",
        help="the Java client's .properties for the cluster, TLS and SASL included. --upstream wins over its "
        "bootstrap.servers. Old clients read with its isolation.level (default: read_committed)",
    )


def _add_rights(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--read-only",
        action="store_true",
        help="serve no Produce and no transactions, so that clients only read records and commit offsets",
    )
    group.add_argument(
        "--allow-create-topics",
        action="store_true",
        help="serve CreateTopics. The gateway serves no other API of administrators",
    )


def _add_tls(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--tls-certificate", type=Path, metavar="FILE", help="the gateway's certificate and its chain, in PEM"
    )
    group.add_argument(
        "--tls-key", type=Path, metavar="FILE", help="the certificate's private key, in PEM, not encrypted"
    )
    group.add_argument(
        "--tls-client-authorities",
        type=Path,
        metavar="FILE",
        help="authorities in PEM, one of which must have signed each client's certificate (default: none)",
    )


def _add_logins(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--sasl-pass-through",
        action="store_true",
        help="pass each client's login on to the broker behind its connection, so that the cluster sees the "
        "client and not the gateway. --upstream-config then needs no login, only security.protocol. Set "
        "--tls-certificate too, or passwords and tokens cross the network in clear text",
    )
    group.add_argument(
        "--broker-ids",
        metavar="N[-M][,N[-M]...]",
        help="ids of brokers that get a listener at the start, such as 1-3: with --sasl-pass-through and no "
        "login in --upstream-config, the gateway cannot ask the cluster (default: the cluster's brokers)",
    )


class _Limit(NamedTuple):
    """An option that limits memory or connections, its field of the settings, and its least value."""

    option: str
    field: str
    least: int
    help: str

    def add_to(self, group: argparse._ArgumentGroup) -> None:
        default = _DEFAULTS[self.field]
        shown = "as --max-connections" if default is None else "%(default)s"
        group.add_argument(
            self.option, type=int, default=default, metavar="N", help=f"{self.help} (default: {shown})"
        )

    def value_in(self, args: argparse.Namespace) -> int | None:
        value: int | None = getattr(args, self.option.removeprefix("--").replace("-", "_"))
        if value is not None and value < self.least:
            raise ConfigError(f"{self.option} '{value}': less than {self.least}")
        return value


_LIMITS = (
    _Limit(
        "--buffer-bytes",
        "buffer_bytes",
        _SMALLEST_BUFFER_BYTES,
        "maximum size of a fetch from a broker for one fetch of an old client. A single larger batch comes "
        "whole",
    ),
    _Limit(
        "--chunk-bytes",
        "chunk_bytes",
        1,
        "number of bytes that are converted at a time, in whole batches",
    ),
    _Limit(
        "--max-connections",
        "most_connections",
        1,
        "maximum number of client connections. One client may have one for bootstrap, one to each broker and "
        "one to its coordinator",
    ),
    _Limit(
        "--max-connections-per-address",
        "most_connections_per_address",
        1,
        "maximum number of connections from one IP address, or from one IPv6 network of 64 bits",
    ),
    _Limit(
        "--max-produced-bytes",
        "largest_produced_bytes",
        _SMALLEST_BUFFER_BYTES,
        "maximum decompressed size of a message set from an old producer, with at least 64 bytes for each "
        "message. A larger one is refused",
    ),
    _Limit(
        "--max-request-bytes",
        "largest_request_bytes",
        1024,
        "maximum size of a request that needs translation. A larger one closes its connection",
    ),
    _Limit(
        "--max-bytes-in-flight",
        "bytes_in_flight",
        0,  # see _limits
        "maximum size of all requests and answers above 64 KiB that the gateway holds whole, together. "
        "Further ones wait",
    ),
    _Limit(
        "--max-decompressed-bytes",
        "largest_batch_bytes",
        _SMALLEST_BUFFER_BYTES,
        "maximum size of a batch that is converted, compressed or not. A larger one is refused",
    ),
)


def parse(args: argparse.Namespace) -> GatewaySettings:
    """
    Return the settings of the gateway.

    Raises:
        ConfigError: An option cannot be used.

    """
    if args.read_only and args.allow_create_topics:
        raise ConfigError("--read-only and --allow-create-topics exclude each other. Remove one of them")
    host, port = parse_listen("--listen", args.listen)
    tls = _tls_files(args)
    upstream = parse_cluster(
        "upstream",
        "upstream",
        args.upstream,
        args.upstream_config,
        login_of_others=args.sasl_pass_through,
    )
    if args.sasl_pass_through and tls is None:
        _warn_of_clear_text(upstream)
    return GatewaySettings(
        host,
        port,
        upstream,
        advertised_host=args.advertise,
        allow_any_address=args.allow_any_address,
        tls=tls,
        pass_through=args.sasl_pass_through,
        broker_ids=_broker_ids(args),
        read_only=args.read_only,
        allow_create_topics=args.allow_create_topics,
        **_limits(args),
    )


def run(args: argparse.Namespace) -> int:
    """Run the verb; return the exit code."""
    from ..gateway.gateway import Gateway

    settings = parse(args)
    allow_many_files()
    give_freed_memory_back()
    metrics = serve_metrics(args)
    gateway = Gateway(settings)
    with signals_held() as signals:
        try:
            if not signals.begin(gateway.start):
                upstream = settings.upstream
                say(f"ended by a signal before the {upstream.name} cluster at {upstream.servers} answered")
                return 0
            _announce(gateway, as_json=args.json)
            _announce_the_user(settings)
            with metrics, _events_told(as_json=args.json, verbose=args.verbose):
                signals.wait()
        finally:
            gateway.stop()
    return 0


def _tls_files(args: argparse.Namespace) -> TlsFiles | None:
    from ..gateway.server_tls import TlsFiles

    if args.tls_certificate and args.tls_key:
        return TlsFiles(args.tls_certificate, args.tls_key, args.tls_client_authorities)
    if args.tls_certificate or args.tls_key or args.tls_client_authorities:
        raise ConfigError("TLS on the listeners needs both --tls-certificate and --tls-key")
    return None


def _warn_of_clear_text(upstream: ClientConfig) -> None:
    """Warn that clients send logins without TLS."""
    wanted = ""
    if upstream.security is not None and upstream.security.tls:
        wanted = ": security.protocol=SASL_SSL shows that this cluster expects encryption"
    warn(
        "--sasl-pass-through without TLS: clients send the cluster's own passwords (PLAIN) and tokens "
        f"(OAUTHBEARER) in clear text. Set --tls-certificate and --tls-key{wanted}"
    )


def _limits(args: argparse.Namespace) -> dict[str, Any]:
    limits = {each.field: each.value_in(args) for each in _LIMITS}
    # As Kafka does for queued.max.request.bytes.
    if args.max_bytes_in_flight < args.max_request_bytes:
        raise ConfigError(
            f"--max-bytes-in-flight '{args.max_bytes_in_flight}': less than --max-request-bytes, "
            f"{args.max_request_bytes}"
        )
    return limits


def _announce(gateway: Gateway, *, as_json: bool) -> None:
    brokers = {node_id: str(address) for node_id, address in sorted(gateway.brokers.items())}
    listening, bootstrap = str(gateway.listening), str(gateway.bootstrap)
    if as_json:
        print_json({"type": "gateway", "listening": listening, "bootstrap": bootstrap, "brokers": brokers})
        return
    advertised = f", advertised as {bootstrap}" if bootstrap != listening else ""
    print(f"listening on {listening}{advertised}", flush=True)
    for node_id, address in brokers.items():
        print(f"broker {node_id} is {'advertised as' if advertised else 'at'} {address}", flush=True)


def _broker_ids(args: argparse.Namespace) -> frozenset[int]:
    text: str | None = args.broker_ids
    if text is None:
        return frozenset()
    if not args.sasl_pass_through:
        raise ConfigError(
            "--broker-ids has no effect without --sasl-pass-through: the gateway asks the cluster"
        )
    ids: set[int] = set()
    for part in text.split(","):
        found = _BROKER_IDS.fullmatch(part.strip())
        first, last = (found[1], found[2] or found[1]) if found else ("1", "0")
        if int(first) > int(last):
            raise ConfigError(
                f"--broker-ids {text!r}: {part!r} is neither an id nor a range of ids. Use ids such as "
                "'1-3,5'"
            )
        ids.update(range(int(first), int(last) + 1))
    return frozenset(ids)


def _announce_the_user(settings: GatewaySettings) -> None:
    """Print a notice if clients need no login, and so act as one user."""
    if not settings.pass_through:
        say(
            f"clients need no login: all of them act as {_user_of(settings.upstream)} of the "
            f"{settings.upstream.name} cluster. Set --sasl-pass-through to require logins"
        )


def _user_of(upstream: ClientConfig) -> str:
    """Return the principal that the cluster sees."""
    security = upstream.security
    if security is not None and security.login:
        return security.login.user
    if security is not None and security.tls and security.tls.certificates:
        return "the user of the certificate in --upstream-config"
    return "User:ANONYMOUS"


class _Told(logging.Handler):
    """Prints the log messages of the gateway's threads as lines of the command line."""

    def __init__(self, *, as_json: bool, verbose: bool) -> None:
        super().__init__(logging.INFO)
        self._as_json = as_json
        self._verbose = verbose

    def emit(self, record: logging.LogRecord) -> None:
        sentence = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            if self._verbose:
                error = record.exc_info[1]
                print(printable_lines("".join(traceback.format_exception(error))), end="", file=sys.stderr)
            sentence = f"{sentence}: {record.exc_info[1]!r}"
        (warn if record.levelno >= logging.WARNING else say)(sentence)
        if self._as_json:
            print_json({"type": record.levelname.lower(), "message": sentence})


@contextmanager
def _events_told(*, as_json: bool, verbose: bool) -> Iterator[None]:
    logger = logging.getLogger("shoal.gateway")
    handler, before = _Told(as_json=as_json, verbose=verbose), (logger.level, logger.propagate)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before
