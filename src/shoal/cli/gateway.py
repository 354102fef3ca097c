"""``shoal gateway``: a proxy for clients that Kafka 4 no longer supports."""

from __future__ import annotations

import argparse
import logging
import re
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import kinds
from ..declare import add_options, declared, given, option
from ..errors import ConfigError, Stopped
from ..gateway.settings import GatewaySettings
from ..mirroring.driver.signals import Signals
from ..net.address import Address
from ..printable import printable_lines
from .conversion_metrics import MetricsOptions, serve_metrics
from .options import Subparsers, add_output_options, parse_cluster
from .output import print_json, say, warn
from .serving import allow_many_files, give_freed_memory_back

if TYPE_CHECKING:
    from ..client.config import ClientConfig
    from ..gateway.gateway import Gateway
    from ..gateway.server_tls import TlsFiles

__all__ = ["add_parser", "parse", "run"]

#: One id, or a range; none is larger than a port.
_BROKER_IDS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")


def add_parser(verbs: Subparsers) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "gateway",
        help="let old clients talk to a cluster of Kafka 4",
        description="Run a Kafka protocol proxy in front of a cluster until SIGINT or SIGTERM. The gateway "
        "passes on the versions that the cluster supports, translates those that Kafka 4 removed, and "
        "converts record sets to the old formats while it sends them.",
        epilog="Example:\n\n  shoal gateway --listen 127.0.0.1:9092 --upstream kafka-1:9092,kafka-2:9092",
    )
    add_options(parser, declared(_Command), declared(GatewaySettings), declared(MetricsOptions))
    add_output_options(parser, exit_code_of_interrupt=0)


def _parse_broker_ids(option: str, text: str) -> frozenset[int]:
    ids: set[int] = set()
    for part in text.split(","):
        found = _BROKER_IDS.fullmatch(part.strip())
        first, last = (found[1], found[2] or found[1]) if found else ("1", "0")
        if int(first) > int(last):
            raise ConfigError(
                f"{option} {text!r}: {part!r} is neither an id nor a range of ids. Use ids such as '1-3,5'"
            )
        ids.update(range(int(first), int(last) + 1))
    return frozenset(ids)


@dataclass(frozen=True)
class _Command:
    """Options of the command alone."""

    listen: Address = option(
        kinds.ADDRESS,
        "a loopback address that clients bootstrap from. They find broker N of the cluster at port PORT + 1 "
        "+ N. Port 0 takes free ones for all",
        default=Address("127.0.0.1", 9092),
        group="addresses",
    )
    advertise: str | None = option(
        kinds.text("HOST"),
        "the host that clients connect to (default: --listen's host)",
        default=None,
        group="addresses",
    )
    upstream: str | None = option(
        kinds.names("HOST:PORT[,HOST:PORT...]"),
        "bootstrap servers of the cluster",
        default=None,
        group="addresses",
    )
    upstream_config: str | None = option(
        kinds.FILE,
        "the Java client's .properties for the cluster, TLS and SASL included. --upstream wins over its "
        "bootstrap.servers. Old clients read with its isolation.level (default: read_committed)",
        default=None,
        group="addresses",
    )
    tls_certificate: str | None = option(
        kinds.FILE,
        "the gateway's certificate and its chain, in PEM",
        default=None,
        group="TLS on the listeners",
    )
    tls_key: str | None = option(
        kinds.FILE,
        "the certificate's private key, in PEM, not encrypted",
        default=None,
        group="TLS on the listeners",
    )
    tls_client_authorities: str | None = option(
        kinds.FILE,
        "authorities in PEM, one of which must have signed each client's certificate (default: none)",
        default=None,
        group="TLS on the listeners",
    )
    sasl_pass_through: bool = option(
        kinds.FLAG,
        "pass each client's login on to the broker behind its connection, so that the cluster sees the "
        "client and not the gateway. --upstream-config then needs no login, only security.protocol. Set "
        "--tls-certificate too, or passwords and tokens cross the network in clear text",
        group="logins of clients",
    )
    broker_ids: frozenset[int] = option(
        kinds.names("N[-M][,N[-M]...]", _parse_broker_ids),
        "ids of brokers that get a listener at the start, such as 1-3: with --sasl-pass-through and no login "
        "in --upstream-config, the gateway cannot ask the cluster (default: the cluster's brokers)",
        default=frozenset(),
        group="logins of clients",
    )


def parse(args: argparse.Namespace) -> GatewaySettings:
    """
    Return the settings of the gateway.

    Raises:
        ConfigError: An option cannot be used.

    """
    command = _Command(**given(_Command, vars(args)))
    if args.read_only and args.allow_create_topics:
        raise ConfigError("--read-only and --allow-create-topics exclude each other. Remove one of them")
    if command.broker_ids and not command.sasl_pass_through:
        raise ConfigError(
            "--broker-ids has no effect without --sasl-pass-through: the gateway asks the cluster"
        )
    tls = _tls_files(command)
    upstream = parse_cluster(
        "upstream",
        "upstream",
        command.upstream,
        command.upstream_config,
        login_of_others=command.sasl_pass_through,
    )
    upstream.check_options("--upstream", {"a gateway": True})
    if command.sasl_pass_through and tls is None:
        _warn_of_clear_text(upstream)
    return GatewaySettings(
        *command.listen,
        upstream,
        advertised_host=command.advertise,
        tls=tls,
        pass_through=command.sasl_pass_through,
        broker_ids=command.broker_ids,
        **given(GatewaySettings, vars(args)),
    )


def run(args: argparse.Namespace) -> int:
    """Run the verb; return the exit code."""
    from ..gateway.gateway import Gateway

    settings = parse(args)
    allow_many_files()
    give_freed_memory_back()
    metrics = serve_metrics(args)
    gateway = Gateway(settings)
    with Signals(threading.Event(), on_retry=lambda: None) as signals:
        try:
            with signals.interrupting():
                gateway.start()
            _announce(gateway, as_json=args.json)
            _announce_the_user(settings)
            with metrics, _events_told(as_json=args.json, verbose=args.verbose):
                signals.wait()
        except Stopped:
            upstream = settings.upstream
            say(f"ended by a signal before the {upstream.name} cluster at {upstream.servers} answered")
        finally:
            gateway.stop()
    return 0


def _tls_files(command: _Command) -> TlsFiles | None:
    from ..gateway.server_tls import TlsFiles

    certificate, key, authorities = (
        None if each is None else Path(each)
        for each in (command.tls_certificate, command.tls_key, command.tls_client_authorities)
    )
    if certificate and key:
        return TlsFiles(certificate, key, authorities)
    if certificate or key or authorities:
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
