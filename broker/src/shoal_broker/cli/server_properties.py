"""
A broker's ``server.properties``, as far as the embedded broker supports it.

Besides the supported settings, the file may have ``listeners`` (whose host is also the advertised one),
``log.dirs``, and ``node.id`` or ``broker.id``. The broker ignores other properties (threads, quorums,
replication) with a warning, as Kafka does with unknown ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shoal.errors import ConfigError

__all__ = ["ServerProperties", "read_server_properties"]


#: Kafka's older names of ``log.retention.ms``, the finer one first, with their units in milliseconds.
_RETENTION = {"log.retention.minutes": 60_000, "log.retention.hours": 3_600_000}


@dataclass(frozen=True, slots=True)
class ServerProperties:
    """
    The content of a file.

    Attributes:
        settings: The settings that the broker supports, by Kafka's names.
        listen: The listener, ``HOST:PORT``, if any.
        data: The data directory, if any.
        node_id: The broker's id in the cluster, if any.
        ignored: Names of properties without effect.

    """

    settings: Mapping[str, str]
    listen: str | None = None
    data: Path | None = None
    node_id: int | None = None
    ignored: Sequence[str] = ()

    def updated(self, later: ServerProperties) -> ServerProperties:
        """Return the properties of both; those of ``later`` win."""
        return ServerProperties(
            {**self.settings, **later.settings},
            later.listen or self.listen,
            later.data or self.data,
            self.node_id if later.node_id is None else later.node_id,
        )


def read_server_properties(
    path: Path, properties: Mapping[str, str], known: Mapping[str, object]
) -> ServerProperties:
    """
    Read the properties of a file.

    Args:
        path: The file, for messages.
        known: The settings that the broker supports, by name.

    Raises:
        ConfigError: A listener, a directory or an id that the broker cannot have.

    """
    listeners = properties.get("listeners")
    directories = properties.get("log.dirs", properties.get("log.dir"))
    node_id = properties.get("node.id", properties.get("broker.id"))
    used = {"listeners", "log.dirs", "log.dir", "node.id", "broker.id", *_RETENTION}
    settings = {name: value.strip() for name, value in properties.items() if name in known}
    for name, milliseconds in _RETENTION.items():
        if name in properties:
            settings.setdefault("log.retention.ms", str(_milliseconds(path, properties[name], milliseconds)))
    return ServerProperties(
        settings,
        _plaintext(path, listeners) if listeners else None,
        _only_directory(path, directories) if directories else None,
        _number(path, node_id) if node_id else None,
        sorted(name for name in properties if name not in known and name not in used),
    )


def _plaintext(path: Path, listeners: str) -> str:
    for listener in listeners.split(","):
        name, _, address = listener.strip().partition("://")
        if name.upper() == "PLAINTEXT":
            host, colon, port = address.rpartition(":")
            if not colon:
                raise ConfigError(
                    f"{path}: the listener {listener.strip()!r} has no port. Use PLAINTEXT://HOST:PORT"
                )
            return f"{host or '127.0.0.1'}:{port}"
    raise ConfigError(
        f"{path}: the embedded broker supports PLAINTEXT only, and listeners has none. Add PLAINTEXT://HOST:PORT"
    )


def _only_directory(path: Path, directories: str) -> Path:
    found = [each.strip() for each in directories.split(",") if each.strip()]
    if len(found) != 1:
        raise ConfigError(f"{path}: log.dirs {directories!r} is not one directory. Use a single one")
    return Path(found[0])


def _number(path: Path, text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text.strip()):
        raise ConfigError(f"{path}: {text!r} is not the id of a node. Use a number from 0 on")
    return int(text)


def _milliseconds(path: Path, text: str, unit: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ConfigError(f"{path}: {text!r} is not a whole number of hours or minutes") from None
    return -1 if number < 0 else number * unit
