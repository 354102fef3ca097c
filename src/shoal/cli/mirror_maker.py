"""``shoal mirror-maker``: MirrorMaker 1's command line, and that of KIP-3 and KIP-712."""

from __future__ import annotations

import argparse
import importlib.metadata
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from ..client.config import ClientConfig
from ..client.consumer.settings import CONSUMER_PROPERTIES, ConsumerSettings
from ..client.producer.batches import TOGETHER
from ..client.producer.settings import PRODUCER_PROPERTIES, ProducerSettings
from ..errors import ConfigError
from ..mirroring.model.copy_options import Handling, MultiBatch, Rebatch
from ..mirroring.model.incidents import IncidentKind
from ..mirroring.model.options import MirrorOptions
from ..mirroring.model.topics import TopicSelection
from ..mirrormaker.options import MirrorMakerOptions, parse_include
from ..properties_file import read_properties_file
from .mirror import add_guarantee_options, add_spark_options, add_watching_options, given_options
from .options import Subparsers, add_output_options
from .output import progress_until_unread, report_to, warn

__all__ = ["add_parser", "parse", "run"]

T = TypeVar("T")

_DEFAULT_COMMIT_INTERVAL_MS = 60_000

_IN_FLIGHT = "max.in.flight.requests.per.connection"

#: What ``kafka.tools.MirrorMaker`` sets where the producer's file does not, so that nothing is lost.
_NO_DATA_LOSS = {
    "delivery.timeout.ms": str(2**31 - 1),
    "max.block.ms": str(2**63 - 1),
    "acks": "all",
    _IN_FLIGHT: "1",
}

#: Of the consumer's file: the tool's own affair, whatever they say.
_CONSUMER_OWN = ("key.deserializer", "value.deserializer")

#: Of the producer's file, likewise; ``producer.type`` is that of Kafka 0.8, and the tool takes it out.
_PRODUCER_OWN = ("key.serializer", "value.serializer", "producer.type")

#: The consumer's automatic commits: as Java's consumer calls them, KIP-3, and the consumer of Kafka 0.8.
_AUTO_COMMIT = ("enable.auto.commit", "auto.commit.enabled", "auto.commit.enable")

#: Of the producer of Kafka 0.8 and KIP-3; in Java's producer of today ``max.block.ms`` says that.
_BLOCK = "block.on.buffer.full"

#: No batch is smaller than its header, and few brokers take larger ones.
_LEAST_BATCH_BYTES = 1024

_MOST_IN_FLIGHT = 5

#: Each slice of a handler's has a producer with an id of its own, which the destination's brokers remember
#: for a day, by partition; and nothing is dealt anew that the group does not deal.
_HANDLED_SLICE_S = 300.0


def add_parser(verbs: Subparsers) -> None:
    parser = verbs.add_parser(
        "mirror-maker",
        help="MirrorMaker 1's command line (KIP-3, KIP-712), on shoal's engine",
        description="Copy topics from one cluster to another, with MirrorMaker 1's command line and files: a "
        "member of the consumer group in the consumer's file, it shares the topics' partitions with the "
        "others in it. Goes on until SIGINT or SIGTERM; then finishes what is in flight and commits. "
        "Partitions stay what they are, unless --repartition is given. Exit codes: 0 ended by a signal; 1 "
        "failed, with everything committed that was acknowledged; 2 usage or configuration, and nothing was "
        "done; 4 ended by a signal, after batches were left out or other incidents. docs/from-mirrormaker.md "
        "says what differs from MirrorMaker.",
        epilog="Example:\n\n"
        "  shoal mirror-maker --consumer.config consumer.properties \\\n"
        "    --producer.config producer.properties --include 'orders.*' --use.raw.bytes",
        allow_abbrev=False,
    )
    _add_options_of_mirror_maker(parser.add_argument_group("MirrorMaker 1, KIP-3 and KIP-712"))
    _add_own_options(parser.add_argument_group("shoal"))
    add_guarantee_options(parser)
    add_watching_options(parser)
    add_spark_options(parser, default_master="local[<num.streams>]")
    add_output_options(parser, exit_code_of_interrupt=0)
    parser.set_defaults(run=run)


def _add_options_of_mirror_maker(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--consumer.config",
        dest="consumer_config",
        required=True,
        metavar="FILE",
        help="properties of the consumer, for the source cluster; its group.id is the group",
    )
    group.add_argument(
        "--producer.config",
        dest="producer_config",
        required=True,
        metavar="FILE",
        help="properties of the producer, for the destination cluster",
    )
    group.add_argument(
        "--include",
        metavar="REGEX",
        help="the topics to mirror: a regular expression that whole names match, or several with commas",
    )
    group.add_argument("--whitelist", metavar="REGEX", help="the same, as older versions call it")
    group.add_argument(
        "--num.streams",
        dest="num_streams",
        type=int,
        default=1,
        metavar="N",
        help="into how many tasks this process deals its partitions, as far as --master has cores for them "
        "(default: 1)",
    )
    group.add_argument(
        "--offset.commit.interval.ms",
        dest="commit_interval_ms",
        type=int,
        default=_DEFAULT_COMMIT_INTERVAL_MS,
        metavar="MS",
        help=f"between two commits (default: {_DEFAULT_COMMIT_INTERVAL_MS})",
    )
    group.add_argument(
        "--abort.on.send.failure",
        "--abort.on.send.fail",
        "--abortOnSendFail",
        dest="abort_on_send_failure",
        type=str.lower,
        nargs="?",
        const="true",
        default="true",
        choices=["true", "false"],
        help="how to react to a record that the destination refuses for good. true: commit what is "
        "acknowledged and end. false: leave the record out, log and count it (default: true, also without a "
        "value)",
    )
    group.add_argument(
        "--consumer.rebalance.listener",
        dest="rebalance_listener",
        metavar="MODULE:CLASS",
        help="a class of Python's, derived from shoal.handlers.MirrorMakerRebalanceListener",
    )
    group.add_argument(
        "--rebalance.listener.args",
        "--consumer.rebalance.listener.args",
        dest="rebalance_listener_args",
        metavar="TEXT",
        help="given to the listener when it is made",
    )
    group.add_argument(
        "--message.handler",
        dest="message_handler",
        metavar="MODULE:CLASS",
        help="a class of Python's that sees each record, derived from "
        "shoal.handlers.MirrorMakerMessageHandler; with --use.raw.bytes each batch, derived from "
        "MirrorMakerRawBytesMessageHandler. What passes through it is mirrored at least once",
    )
    group.add_argument(
        "--message.handler.args",
        dest="message_handler_args",
        metavar="TEXT",
        help="given to the handler when it is made",
    )
    group.add_argument(
        "--use.raw.bytes",
        dest="use_raw_bytes",
        type=str.lower,
        nargs="?",
        const="true",
        default="false",
        choices=["true", "false"],
        help="mirror whole batches as they are; without, records are decoded, and compressed and cut into "
        "batches as the producer's compression.type and batch.size say",
    )
    group.add_argument("--new.consumer", dest="new_consumer", action="store_true", help="has no effect")
    group.add_argument(
        "--version",
        action="version",
        version=f"shoal {importlib.metadata.version('shoal')}",
        help="show the version and exit",
    )


def _add_own_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--repartition",
        action="store_true",
        help="let records go to the partition that the hash of their key says, as MirrorMaker 1 does; they "
        "are mirrored at least once then (default: the source's partition)",
    )


def parse(args: argparse.Namespace) -> MirrorMakerOptions:
    """
    Read the options and both files; warn of what has no effect.

    Raises:
        ConfigError: An option or a property makes no sense, or cannot be honoured; names it.

    """
    option, include = ("--include", args.include) if args.include else ("--whitelist", args.whitelist)
    if not include:
        raise ConfigError("--include is required: a regular expression of topics")
    if args.new_consumer:
        warn("--new.consumer is ignored: shoal always uses the new consumer")
    raw = args.use_raw_bytes == "true"
    source, consumer, consumer_texts = _read_consumer(args.consumer_config, raw)
    destination, producer, producer_texts = _read_producer(args.producer_config, raw, args.repartition)
    if consumer.membership is None:
        raise ConfigError(f"--consumer.config {args.consumer_config}: no group.id")
    handling = _handling(args, raw, consumer_texts, producer_texts)
    given = given_options(args)
    if args.abort_on_send_failure == "false":
        given["continue_on"].append(IncidentKind.SEND_FAILURE.value)
    if not raw:
        batch_bytes = max(producer.batch_size, _LEAST_BATCH_BYTES)
        given |= {
            "keep_append_time": True,
            "multi_batch": MultiBatch.OFF,
            "rebatch": Rebatch(batch_bytes, producer.compression_type, everything=True),
        }
    if handling is not None:
        given |= {"handling": handling, "slice_s": _HANDLED_SLICE_S}
    mirror = MirrorOptions.parse(
        source,
        destination,
        TopicSelection("(.*)"),
        {
            "master": f"local[{args.num_streams}]",
            **{name: value for name, value in given.items() if value is not None},
            "group": consumer.membership.group,
            "start": consumer.auto_offset_reset,
            "max_in_flight": producer.max_in_flight,
            "takes_over_offsets": True,
        },
    )
    return MirrorMakerOptions(
        mirror,
        parse_include(option, include),
        consumer.membership,
        args.num_streams,
        _named(
            args.rebalance_listener,
            args.rebalance_listener_args,
            "--rebalance.listener.args",
            "--consumer.rebalance.listener",
        ),
    )


def _named(
    name: str | None, text: str | None, option: str, option_of_class: str
) -> tuple[str, str | None] | None:
    if name is None and text is not None:
        raise ConfigError(f"{option} needs the class as well; set {option_of_class}")
    return None if name is None else (name, text)


def _handling(
    args: argparse.Namespace, raw: bool, consumer: Mapping[str, str], producer: Mapping[str, str]
) -> Handling | None:
    named = _named(
        args.message_handler, args.message_handler_args, "--message.handler.args", "--message.handler"
    )
    if args.repartition and raw:
        raise ConfigError(
            "--repartition and --use.raw.bytes: the records of a batch have many keys; leave one of them out"
        )
    if named is None and not args.repartition:
        return None
    name, text = named or (None, None)
    return Handling(name, text, raw, args.repartition, consumer, producer)


def _read_consumer(file: str, raw: bool) -> tuple[ClientConfig, ConsumerSettings, dict[str, str]]:
    where = f"--consumer.config {file}"
    properties = _without(read_properties_file("--consumer.config", file), _CONSUMER_OWN)
    _check_together(where, properties.pop("fetch.raw.bytes", None), "fetch.raw.bytes", raw)
    if properties.pop("client.rack", None) is not None:
        warn(f"{where}: client.rack has no effect: it is read from the leaders")
    for name in _AUTO_COMMIT:
        if _is_true(where, properties, name, default=False):
            warn(f"{where}: {name}=true has no effect: only acknowledged records are committed")
    properties["enable.auto.commit"] = "false"
    if properties.get("auto.offset.reset", "").lower() == "none":
        raise ConfigError(
            f"{where}: shoal cannot honour auto.offset.reset=none; say earliest or latest (the default)"
        )
    client = _client("source", properties, where)
    kept = _without_connection(properties, CONSUMER_PROPERTIES)
    with_servers = {**kept, "bootstrap.servers": client.servers}
    settings = _said_of(where, lambda: ConsumerSettings.from_properties(with_servers))
    if settings.membership is not None:
        client = replace(client, client_id=f"{settings.membership.group}-0")
    return client, settings, kept


def _read_producer(
    file: str, raw: bool, repartition: bool
) -> tuple[ClientConfig, ProducerSettings, dict[str, str]]:
    where = f"--producer.config {file}"
    properties = _without(read_properties_file("--producer.config", file), _PRODUCER_OWN)
    _check_together(where, properties.pop("send.raw.bytes", None), "send.raw.bytes", raw)
    if not _is_true(where, properties, _BLOCK, default=True):
        warn(f"{where}: {_BLOCK}=false has no effect: a full buffer makes the mirror wait, and loses nothing")
    _keep_in_flight_few(where, properties)
    if not repartition and properties.pop("partitioner.class", None) is not None:
        warn(f"{where}: partitioner.class has no effect: partitions are the source's")
    for name, value in _NO_DATA_LOSS.items():
        given = properties.setdefault(name, value)
        if given != value and (name, given) != ("acks", "-1"):
            warn(f"{where}: {_of_overriding(name, given)}")
    client = _client("destination", properties, where)
    kept = _without_connection(properties, PRODUCER_PROPERTIES)
    with_servers = {**kept, "bootstrap.servers": client.servers}
    settings = _said_of(where, lambda: ProducerSettings.from_properties(with_servers))
    return client, settings, kept


def _client(cluster: str, properties: Mapping[str, str], where: str) -> ClientConfig:
    """Read how a cluster is reached; warn of what has no effect."""
    client, warnings = ClientConfig.from_properties(cluster, properties, where=where)
    for warning in warnings:
        warn(warning)
    return client


def _without_connection(properties: Mapping[str, str], kept: Mapping[str, object]) -> dict[str, str]:
    """Return those properties that are in a table: nothing of the connection, and no secrets."""
    return {name: value for name, value in properties.items() if name in kept}


def _keep_in_flight_few(where: str, properties: dict[str, str]) -> None:
    """With more in flight than a broker remembers, a producer is not idempotent, and does not say so."""
    given = properties.get(_IN_FLIGHT, "").strip()
    if given.isdecimal() and len(given) < 10 and int(given) > _MOST_IN_FLIGHT:
        warn(f"{where}: {_IN_FLIGHT}={given} is more than a broker can tell apart; it is {_MOST_IN_FLIGHT}")
        properties[_IN_FLIGHT] = str(_MOST_IN_FLIGHT)


def _check_together(where: str, value: str | None, name: str, raw: bool) -> None:
    """Refuse a mirror that is raw on one side, or not as ``--use.raw.bytes`` says."""
    if value is not None and value.strip().lower() != str(raw).lower():
        raise ConfigError(
            f"{where}: {name}={value}, and --use.raw.bytes says {str(raw).lower()}: {TOGETHER}; "
            f"--use.raw.bytes does that, so leave {name} out"
        )


def _is_true(where: str, properties: dict[str, str], name: str, *, default: bool) -> bool:
    """Take a property that is true or false out of the others."""
    value = properties.pop(name, str(default)).strip().lower()
    if value not in ("true", "false"):
        raise ConfigError(f"{where}: {name}={value} is neither true nor false")
    return value == "true"


def _of_overriding(name: str, value: str) -> str:
    if name == _IN_FLIGHT:
        return (
            f"{name}={value}: not MirrorMaker's 1; nothing is lost or reordered by that where sequences "
            "tell, which is everywhere but with acks=0 or 1 and a handler (docs/from-mirrormaker.md)"
        )
    return (
        f"{name} is overridden to {value}: data loss or message reordering is possible with a handler or "
        "--repartition; without, it has no effect"
    )


def _without(properties: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in names}


def _said_of(where: str, read: Callable[[], T]) -> T:
    """Let a settings' error name the file."""
    try:
        return read()
    except ConfigError as error:
        _, _, said = str(error).partition(": ")
        raise ConfigError(f"{where}: {said}") from None


def run(args: argparse.Namespace) -> int:
    options = parse(args)
    # Spark takes a second to import: not for who made a mistake, or asked for help.
    from ..spark.api import run_mirror_maker

    stop = threading.Event()
    with report_to(as_json=args.json, is_service=True) as report:
        if options.mirror.copy.handling is not None:
            report.notice(
                "records pass through a handler, or are hashed anew: they are mirrored at least once, and "
                "some perhaps again after a failure or a rebalance"
            )
        summary = run_mirror_maker(
            options,
            on_progress=progress_until_unread(report, stop),
            on_warning=report.warning,
            on_notice=report.notice,
            stop=stop,
        )
        report.summary(summary)
    return summary.exit_code
