"""``shoal mirror-maker``: MirrorMaker 1's command line, and that of KIP-3 and KIP-712."""

from __future__ import annotations

import argparse
import importlib.metadata
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from .. import kinds
from ..client.config import ClientConfig
from ..client.consumer.settings import CONSUMER_PROPERTIES, ConsumerSettings
from ..client.producer.batches import TOGETHER
from ..client.producer.settings import PRODUCER_PROPERTIES, ProducerSettings
from ..declare import add_options, declared, given, option, pick
from ..errors import ConfigError
from ..mirroring.model.copy_options import Handling, Rebatch
from ..mirroring.model.http_access import HttpOptions
from ..mirroring.model.incidents import IncidentKind
from ..mirroring.model.options import MirrorOptions
from ..mirroring.model.topics import TopicSelection
from ..mirrormaker.options import MOST_STREAMS, MirrorMakerOptions, parse_include
from ..option_values import parse_flag
from ..properties_file import read_properties_file
from ..protocol.produce import MOST_IN_FLIGHT
from ..timing import DEFAULT_TIMING
from .options import Subparsers, add_output_options
from .output import warn
from .report import progress_until_unread, report_to

__all__ = ["add_parser", "parse", "run"]

T = TypeVar("T")

_IN_FLIGHT = "max.in.flight.requests.per.connection"

#: Settings against data loss, which ``kafka.tools.MirrorMaker`` adds if the producer's file lacks them.
_NO_DATA_LOSS = {
    "delivery.timeout.ms": str(2**31 - 1),
    "max.block.ms": str(2**63 - 1),
    _IN_FLIGHT: "1",
}

#: Properties with one meaning here: the values that have it, and the sentence about all others.
#: Those without a sentence are ones that the tool sets itself, or removes (``producer.type``, Kafka 0.8).
_Always: TypeAlias = Mapping[str, tuple[Collection[str], str]]

_COMMITS = (("false",), "only acknowledged records are committed")

_ALWAYS_CONSUMED: _Always = {
    **dict.fromkeys(("key.deserializer", "value.deserializer"), ((), "")),
    # Java's consumer, KIP-3, and the consumer of Kafka 0.8.
    **dict.fromkeys(("enable.auto.commit", "auto.commit.enabled", "auto.commit.enable"), _COMMITS),
    "client.rack": ((), "shoal reads from the leaders"),
}

_ALWAYS_PRODUCED: _Always = {
    **dict.fromkeys(("key.serializer", "value.serializer", "producer.type"), ((), "")),
    "acks": (("all", "-1"), "all in-sync replicas acknowledge each batch"),
    "enable.idempotence": (("true",), "the producer is idempotent"),
    "linger.ms": (("0",), "the outputs of one poll share batches"),
    # Kafka 0.8's producer and KIP-3; Java's producer has max.block.ms instead.
    "block.on.buffer.full": (("true",), "a full buffer makes the mirror wait, and loses nothing"),
    "partitioner.class": ((), "partitions are the source's, or a handler's"),
}

#: No batch is smaller than its header.
_LEAST_BATCH_BYTES = 1024

_LARGEST_INT32 = 2**31 - 1


def add_parser(verbs: Subparsers) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "mirror-maker",
        help="MirrorMaker 1's command line (KIP-3, KIP-712), on shoal's engine",
        description="Copy topics from one cluster to another, with MirrorMaker 1's command line and "
        "files. The mirror joins the consumer group of the consumer's file, and shares the topics' "
        "partitions with the group's other members. The mirror runs until SIGINT or SIGTERM, then "
        "finishes the batches in flight and commits. Records keep their partitions. Exit codes: 0 ended "
        "by a signal; 1 failed, after a commit of all acknowledged batches; 2 usage or configuration, and "
        "nothing was done; 4 ended by a signal, after skipped batches or other incidents. "
        "docs/from-mirrormaker.md lists the differences from MirrorMaker.",
        epilog="Example:\n\n"
        "  shoal mirror-maker --consumer.config consumer.properties \\\n"
        "    --producer.config producer.properties --include 'orders.*' --use.raw.bytes",
    )
    add_options(
        parser,
        declared(_Command, group="MirrorMaker 1, KIP-3 and KIP-712"),
        pick(MirrorOptions, "delivery", "continue_after"),
        pick(MirrorOptions, "metrics", "ui"),
        declared(HttpOptions),
        pick(MirrorOptions, "master", shown="local[<num.streams>]"),
        pick(MirrorOptions, "checkpoint", "conf"),
    )
    version = f"shoal {importlib.metadata.version('shoal')}"
    parser.add_argument("--version", action="version", version=version, help="show the version and exit")
    add_output_options(parser, exit_code_of_interrupt=0)


#: An empty text is a text.
_TEXT = kinds.text("TEXT", lambda _, value: str(value))
_REGEX = replace(_TEXT, metavar="REGEX")

#: As MirrorMaker's parser: without a value, the option is true.
_BOOLEAN = replace(
    kinds.text("true|false", lambda option, value: str(parse_flag(option, value)).lower()),
    choices=("true", "false"),
    bare="true",
)


@dataclass(frozen=True)
class _Command:
    """Options of the command alone."""

    consumer_config: str = option(
        kinds.FILE,
        "properties of the consumer, for the source cluster. Its group.id is the group",
        name="consumer.config",
    )
    producer_config: str = option(
        kinds.FILE,
        "properties of the producer, for the destination cluster",
        name="producer.config",
    )
    include: str | None = option(
        _REGEX,
        "topics to mirror: a regular expression for whole names, or several, separated by commas",
        default=None,
    )
    whitelist: str | None = option(
        _REGEX,
        "the same, the name in older versions",
        default=None,
    )
    num_streams: int = option(
        kinds.whole(1, MOST_STREAMS),
        "number of tasks for the partitions of this process, at most the number of --master's cores",
        default=1,
        name="num.streams",
    )
    commit_interval_ms: int = option(
        kinds.whole(1, _LARGEST_INT32, "MS"),
        "time between two commits",
        default=60_000,
        name="offset.commit.interval.ms",
    )
    abort_on_send_failure: str = option(
        _BOOLEAN,
        "how to react to a record that the destination rejects. true: commit the acknowledged batches and "
        "end. false: skip the record, and log and count it",
        default="true",
        name="abort.on.send.failure",
        aliases=("--abort.on.send.fail", "--abortOnSendFail"),
    )
    rebalance_listener: str | None = option(
        kinds.text("MODULE:CLASS"),
        "a Python class, derived from shoal.handlers.MirrorMakerRebalanceListener",
        default=None,
        name="consumer.rebalance.listener",
    )
    rebalance_listener_args: str | None = option(
        _TEXT,
        "the argument for the listener",
        default=None,
        name="rebalance.listener.args",
        aliases=("--consumer.rebalance.listener.args",),
    )
    message_handler: str | None = option(
        kinds.text("MODULE:CLASS"),
        "a Python class that receives each record, derived from shoal.handlers.MirrorMakerMessageHandler. "
        "With --use.raw.bytes it receives each batch, derived from MirrorMakerRawBytesMessageHandler. With "
        "a handler, records are mirrored at least once",
        default=None,
        name="message.handler",
    )
    message_handler_args: str | None = option(
        _TEXT,
        "the argument for the handler",
        default=None,
        name="message.handler.args",
    )
    use_raw_bytes: str = option(
        _BOOLEAN,
        "mirror whole batches as they are. Without this option, shoal decodes the records, and writes "
        "batches with the producer's compression.type and batch.size",
        default="false",
        name="use.raw.bytes",
    )
    new_consumer: bool = option(
        kinds.FLAG,
        "has no effect",
        name="new.consumer",
    )


def parse(args: argparse.Namespace) -> MirrorMakerOptions:
    """
    Read the options and both files, and warn of properties without effect.

    Raises:
        ConfigError: An option or a property cannot be used.

    """
    command = _Command(**given(_Command, vars(args)))
    name, include = ("--include", command.include) if command.include else ("--whitelist", command.whitelist)
    if not include:
        raise ConfigError("--include is required: a regular expression of topics")
    if command.new_consumer:
        warn("--new.consumer is ignored: shoal always uses the new consumer")
    raw = command.use_raw_bytes == "true"
    source, consumer, consumer_texts = _read_consumer(command.consumer_config, raw)
    destination, producer, producer_texts = _read_producer(command.producer_config, raw)
    if consumer.membership is None:
        raise ConfigError(
            f"--consumer.config {command.consumer_config}: no group.id. Set it to the name of the consumer "
            "group"
        )
    handling = _handling(command, raw, consumer_texts, producer_texts)
    options = {"master": f"local[{command.num_streams}]", **given(MirrorOptions, vars(args))}
    if command.abort_on_send_failure == "false":
        options["continue_after"] = options.get("continue_after", frozenset()) | {IncidentKind.SEND_FAILURE}
    if not raw:
        batch_bytes = max(producer.batch_size, _LEAST_BATCH_BYTES)
        options |= {
            "keep_append_time": True,
            "multi_batch": False,
            "rebatch": Rebatch(batch_bytes, producer.compression_type, everything=True),
        }
    timing = replace(DEFAULT_TIMING, commit_interval_s=command.commit_interval_ms / 1000)
    options |= {
        "group": consumer.membership.group,
        "start": consumer.auto_offset_reset,
        "max_in_flight": producer.max_in_flight,
        "takes_over_offsets": True,
        "handling": handling,
        "timing": timing,
    }
    return MirrorMakerOptions(
        MirrorOptions(source, destination, TopicSelection("(.*)"), **options),
        parse_include(name, include),
        consumer.membership,
        command.num_streams,
        _named(
            command.rebalance_listener,
            command.rebalance_listener_args,
            "--rebalance.listener.args",
            "--consumer.rebalance.listener",
        ),
    )


def _named(
    name: str | None, text: str | None, option: str, option_of_class: str
) -> tuple[str, str | None] | None:
    if name is None and text is not None:
        raise ConfigError(f"{option} needs the class as well. Set {option_of_class}")
    return None if name is None else (name, text)


def _handling(
    command: _Command, raw: bool, consumer: Mapping[str, str], producer: Mapping[str, str]
) -> Handling | None:
    named = _named(
        command.message_handler, command.message_handler_args, "--message.handler.args", "--message.handler"
    )
    return None if named is None else Handling(*named, raw, consumer, producer)


def _read_consumer(file: str, raw: bool) -> tuple[ClientConfig, ConsumerSettings, dict[str, str]]:
    where, properties = _read("--consumer.config", file, "fetch.raw.bytes", raw, _ALWAYS_CONSUMED)
    properties["enable.auto.commit"] = "false"
    if properties.get("auto.offset.reset", "").lower() == "none":
        raise ConfigError(
            f"{where}: auto.offset.reset=none is not supported. Set it to earliest or latest (the default)"
        )
    client, kept, settings = _settings(
        "source", where, properties, CONSUMER_PROPERTIES, ConsumerSettings.from_properties
    )
    if settings.membership is not None:
        client = replace(client, client_id=f"{settings.membership.group}-0")
    return client, settings, kept


def _read_producer(file: str, raw: bool) -> tuple[ClientConfig, ProducerSettings, dict[str, str]]:
    where, properties = _read("--producer.config", file, "send.raw.bytes", raw, _ALWAYS_PRODUCED)
    in_flight = properties.get(_IN_FLIGHT, "").strip()
    # With more, Java's producer is silently not idempotent.
    if in_flight.isdecimal() and len(in_flight) < 10 and int(in_flight) > MOST_IN_FLIGHT:
        warn(
            f"{where}: {_IN_FLIGHT}={in_flight} is too large for an idempotent producer. Using "
            f"{MOST_IN_FLIGHT}"
        )
        properties[_IN_FLIGHT] = str(MOST_IN_FLIGHT)
    for name, value in _NO_DATA_LOSS.items():
        given = properties.setdefault(name, value)
        # With several requests in flight nothing is lost or reordered.
        if given != value and name != _IN_FLIGHT:
            warn(
                f"{where}: {name} is overridden to {given}: data loss or message reordering is possible with "
                "a handler. Without one it has no effect"
            )
    client, kept, settings = _settings(
        "destination", where, properties, PRODUCER_PROPERTIES, ProducerSettings.from_properties
    )
    return client, settings, kept


def _read(option: str, file: str, raw_name: str, raw: bool, always: _Always) -> tuple[str, dict[str, str]]:
    """Return the name of a file in messages, and its properties without those of one meaning."""
    where, properties = f"{option} {file}", dict(read_properties_file(option, file))
    value = properties.pop(raw_name, None)
    if value is not None and value.strip().lower() != str(raw).lower():
        raise ConfigError(
            f"{where}: {raw_name}={value}, and --use.raw.bytes is {str(raw).lower()}: {TOGETHER}. "
            f"Remove {raw_name}, which --use.raw.bytes sets"
        )
    for name, (values, sentence) in always.items():
        given = properties.pop(name, None)
        if given is not None and sentence and given.strip().lower() not in values:
            warn(f"{where}: {name}={given} has no effect: {sentence}")
    return where, properties


def _settings(
    cluster: str,
    where: str,
    properties: Mapping[str, str],
    known: Collection[str],
    read: Callable[[Mapping[str, str]], T],
) -> tuple[ClientConfig, dict[str, str], T]:
    """Read how to reach a cluster, and the known properties, which have no secrets."""
    client, warnings = ClientConfig.from_properties(cluster, properties, where=where)
    client.check_options(where.partition(" ")[0], {"shoal mirror-maker": True})
    for warning in warnings:
        warn(warning)
    kept = {name: value for name, value in properties.items() if name in known}
    try:
        return client, kept, read({**kept, "bootstrap.servers": client.servers})
    except ConfigError as error:
        _, _, problem = str(error).partition(": ")
        raise ConfigError(f"{where}: {problem}") from None


def run(args: argparse.Namespace) -> int:
    """Run the verb; return the exit code."""
    options = parse(args)
    # Importing Spark takes a second: not after a mistake, nor for --help.
    from ..spark.api import run_mirror_maker

    stop = threading.Event()
    with report_to(as_json=args.json, is_service=True) as report:
        if options.mirror.handling is not None:
            report.notice(
                "with a handler, records are mirrored at least once: some may be duplicated after a failure "
                "or a rebalance"
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
