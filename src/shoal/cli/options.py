"""Options that several verbs share."""

from __future__ import annotations

import argparse
import enum
from dataclasses import fields
from typing import Any, TypeAlias

from ..client.config import ClientConfig
from ..errors import ConfigError
from ..exit_codes import EXIT_FAILED
from ..mirroring.model.copy_options import CopyOptions
from ..mirroring.model.options import without_groups
from ..mirroring.model.topics import TopicSelection
from ..net.address import parse_bootstrap
from ..properties_file import read_properties_file
from .output import warn

__all__ = [
    "Subparsers",
    "add_cluster_options",
    "add_decompression_limit",
    "add_group_option",
    "add_group_selection",
    "add_mirror_group",
    "add_option",
    "add_output_options",
    "add_topic_options",
    "check_group_options",
    "parse_cluster",
    "parse_clusters",
    "parse_key_values",
    "parse_topics",
]

_MIB = 1024 * 1024

#: The type of the object to which a verb adds its parser.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_cluster_options(parser: argparse.ArgumentParser, *, sides: tuple[str, ...] = ("from", "to")) -> None:
    """Add ``--from``, ``--to`` and their properties files, or those of one side."""
    clusters = parser.add_argument_group("clusters" if len(sides) > 1 else "cluster")
    for option, cluster in (("from", "source"), ("to", "destination")):
        if option not in sides:
            continue
        clusters.add_argument(
            f"--{option}",
            dest=f"{option}_servers",
            metavar="HOST:PORT[,HOST:PORT...]",
            help=f"bootstrap servers of the {cluster} cluster",
        )
        clusters.add_argument(
            f"--{option}-config",
            metavar="FILE",
            help=f"the Java client's .properties for the {cluster} cluster. "
            f"--{option} wins over its bootstrap.servers",
        )


def add_topic_options(
    parser: argparse.ArgumentParser,
    *,
    renamed: bool = True,
    default: str | None = None,
) -> None:
    """
    Add ``--topics``, ``--exclude`` and ``--rename``.

    Args:
        parser: The parser of the verb.
        renamed: Whether the verb has copies, which may have other names.
        default: The topics without ``--topics``; None if there are none.

    """
    topics = parser.add_argument_group("topics")
    default_text = "" if default is None else f" (default: {default})"
    topics.add_argument(
        "--topics",
        required=default is None,
        default=default,
        metavar="TOPIC[,TOPIC...]",
        help="names and regular expressions, separated by commas. An expression must match a whole name, "
        f"and never matches an internal topic{default_text}",
    )
    topics.add_argument("--exclude", metavar="REGEX", help="topics to leave out. Wins over --topics")
    if not renamed:
        return
    topics.add_argument(
        "--rename",
        metavar="REGEX=REPLACEMENT",
        help=r"names at the destination, as '(.*)=west.\1'. A topic that does not match keeps its name",
    )


def add_option(
    group: argparse._ActionsContainer,
    options: type,
    field: str,
    help: str,
    *,
    name: str = "",
    metavar: str | None = None,
    default: Any = None,
) -> None:
    """
    Add an option whose default, values and type are those of a dataclass's field.

    Args:
        group: The verb's parser, or a group of its options.
        field: The field's name. ``vars(args)`` has the option's value under this name.
        help: The help. The default is appended to it, unless it is false or None.
        name: The option's name; by default the field's, with dashes.
        metavar: The value's name; ``BYTES`` accepts sizes such as ``16m``.
        default: The verb's own default, if it is another than the field's.

    """
    option = name or f"--{field.replace('_', '-')}"
    if default is None:
        (default,) = (each.default for each in fields(options) if each.name == field)
    if isinstance(default, bool):
        group.add_argument(option, dest=field, action="store_true", help=help)
        return
    more: dict[str, Any] = {"metavar": metavar}
    if isinstance(default, enum.Enum):
        more = {"choices": [each.value for each in type(default)]}
    elif isinstance(default, (int, float)) and metavar != "BYTES":
        more["type"] = type(default)
    if default:
        help = f"{help} (default: {_shown(default)})"
    group.add_argument(option, dest=field, help=help, **more)


def _shown(default: object) -> str:
    """Return a default as the command line takes it."""
    match default:
        case enum.Enum():
            return str(default.value)
        case float():
            return f"{default:g}"
        case int() if default % _MIB == 0:
            return f"{default // _MIB}m"
    return str(default)


def add_group_option(parser: argparse._ActionsContainer) -> None:
    """Add ``--group``."""
    parser.add_argument(
        "--group",
        metavar="NAME",
        help="consumer group on the source cluster that holds the position "
        "(default: shoal.<source cluster id>.<destination cluster id>)",
    )


def add_mirror_group(parser: argparse.ArgumentParser, *, time_note: str = "", consequence: str) -> None:
    """
    Add the options by which a verb knows the mirror that made the copies.

    Args:
        parser: The parser of the verb.
        time_note: A remark behind the help of ``--keep-append-time``.
        consequence: That of a larger batch, as for :func:`add_decompression_limit`.

    """
    mirror = parser.add_argument_group("mirror")
    add_group_option(mirror)
    add_option(
        mirror,
        CopyOptions,
        "keep_append_time",
        f"the mirror gives records of LogAppendTime topics their append time{time_note}",
    )
    add_decompression_limit(mirror, consequence)


def add_group_selection(group: argparse._ArgumentGroup, *, required: bool) -> None:
    """Add ``--groups`` and ``--exclude-groups``."""
    group.add_argument(
        "--groups",
        required=required,
        metavar="REGEX",
        help="consumer groups whose committed offsets follow the records to the destination. The expression "
        "must match a whole name. The mirror's own group never follows",
    )
    group.add_argument(
        "--exclude-groups", metavar="REGEX", help="consumer groups to leave out. Wins over --groups"
    )


def check_group_options(args: argparse.Namespace) -> None:
    """
    Refuse a ``--groups-interval`` without ``--groups``, also if it is the default.

    Raises:
        ConfigError: The option has no effect.

    """
    if args.groups is None and args.groups_interval_s is not None:
        raise without_groups("--groups-interval", f"{args.groups_interval_s:g}")


def add_decompression_limit(group: argparse._ActionsContainer, consequence: str) -> None:
    """Add ``--max-decompressed-bytes``, with the consequence of a larger batch in its help."""
    add_option(
        group,
        CopyOptions,
        "max_decompressed_bytes",
        f"maximum size of a decompressed batch. A larger batch {consequence}",
        metavar="BYTES",
    )


def add_output_options(
    parser: argparse.ArgumentParser,
    *,
    exit_code_of_failure: int = EXIT_FAILED,
    exit_code_of_interrupt: int = EXIT_FAILED,
) -> None:
    """
    Add ``--json`` and ``--verbose``, and set the exit codes for errors.

    Args:
        exit_code_of_failure: The exit code of any error but a ConfigError, whose code is 2 for every verb.
        exit_code_of_interrupt: The exit code of a SIGINT that the verb does not handle itself.

    """
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print JSON objects on stdout, one per line")
    output.add_argument("--verbose", action="store_true", help="show tracebacks with errors")
    parser.set_defaults(
        exit_code_of_failure=exit_code_of_failure, exit_code_of_interrupt=exit_code_of_interrupt
    )


def parse_topics(args: argparse.Namespace) -> TopicSelection:
    """
    Return the selection of topics.

    Raises:
        ConfigError: An expression is not valid.

    """
    return TopicSelection(args.topics, args.exclude, args.rename)


def parse_clusters(args: argparse.Namespace) -> tuple[ClientConfig, ClientConfig]:
    """
    Return how to reach the source and the destination, and warn of properties without effect.

    Raises:
        ConfigError: A file cannot be read, a property is not supported, or the servers are missing.

    """
    return (
        parse_cluster("source", "from", args.from_servers, args.from_config),
        parse_cluster("destination", "to", args.to_servers, args.to_config),
    )


def parse_cluster(
    name: str, option: str, servers: str | None, file: str | None, *, login_of_others: bool = False
) -> ClientConfig:
    """
    Return how to reach one cluster, and warn of properties without effect.

    Args:
        name: The cluster's name in messages.
        option: The option of the servers. With ``-config`` appended, it is the option of the file.
        login_of_others: Whether clients log in over the connections. Then SASL is required, but no login.

    Raises:
        ConfigError: See :func:`parse_clusters`.

    """
    properties = read_properties_file(f"--{option}-config", file) if file else {}
    if servers is not None:
        try:
            parse_bootstrap(servers)
        except ValueError as error:
            raise ConfigError(f"--{option}: {error}") from None
        properties["bootstrap.servers"] = servers
    if "bootstrap.servers" not in properties:
        raise ConfigError(f"--{option} is required: the bootstrap servers of the {name} cluster")
    where = f"--{option}-config {file}" if file else None
    if login_of_others:
        properties = _with_optional_login(properties, where or f"--{option}")
    config, warnings = ClientConfig.from_properties(name, properties, where=where)
    for warning in warnings:
        warn(warning)
    return config


def _with_optional_login(properties: dict[str, str], where: str) -> dict[str, str]:
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if not protocol.startswith("SASL_"):
        raise ConfigError(
            f"{where}: security.protocol={protocol!r} has no login to pass on. Set SASL_SSL or "
            "SASL_PLAINTEXT, as the cluster's listener has it"
        )
    if "sasl.jaas.config" in properties:
        return properties
    return {**properties, "security.protocol": protocol.removeprefix("SASL_")}


def parse_key_values(option: str, texts: list[str]) -> dict[str, str]:
    """
    Read repeated ``KEY=VALUE``. The last value of a key wins.

    Raises:
        ConfigError: A text has no key, or no equals sign.

    """
    values = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{option} {text!r} is not KEY=VALUE")
        values[key.strip()] = value.strip()
    return values
