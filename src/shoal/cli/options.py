"""Options that several verbs share."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TypeAlias

from .. import kinds
from ..client.config import ClientConfig, read_servers
from ..declare import add_options, declared, option
from ..errors import ConfigError
from ..exit_codes import EXIT_FAILED
from ..mirroring.model.topics import TopicSelection
from ..properties_file import read_properties_file
from .output import warn

__all__ = [
    "Clusters",
    "Subparsers",
    "add_output_options",
    "parse_cluster",
    "parse_clusters",
    "parse_topics",
]

#: The type of the object to which a verb adds its parser.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_SERVERS = kinds.names("HOST:PORT[,HOST:PORT...]")


@dataclass(frozen=True)
class Clusters:
    """The options of both clusters."""

    from_servers: str | None = option(
        _SERVERS,
        "bootstrap servers of the source cluster. mirror, groups, verify and inspect also take the directory "
        "of an archive: a path, or a URL of s3, gs, abfss, hdfs or file (docs/archive.md)",
        default=None,
        group="clusters",
        name="from",
    )
    from_config: str | None = option(
        kinds.FILE,
        "the Java client's .properties for the source cluster. --from wins over its bootstrap.servers",
        default=None,
        group="clusters",
    )
    to_servers: str | None = option(
        _SERVERS,
        "bootstrap servers of the destination cluster. mirror and verify also take the directory of an "
        "archive",
        default=None,
        group="clusters",
        name="to",
    )
    to_config: str | None = option(
        kinds.FILE,
        "the Java client's .properties for the destination cluster. --to wins over its bootstrap.servers",
        default=None,
        group="clusters",
    )


@dataclass(frozen=True)
class _Output:
    """The options of each verb's output."""

    json: bool = option(kinds.FLAG, "print JSON objects on stdout, one per line")
    verbose: bool = option(kinds.FLAG, "say how the inner loops run, and show tracebacks with errors")


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
    add_options(parser, declared(_Output, group="output"))
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
        read_servers(f"--{option}", servers)
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
