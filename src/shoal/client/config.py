"""
The configuration of a cluster's connections, by the properties of Kafka's Java clients.

An archive may stand in place of a cluster. :class:`ArchiveConfig` is its configuration, and answers whatever
the two differ in: how a connection is opened, how an end is called in messages, and what an error code means.
An end also answers which options it takes, and which of two writers writes to it. So nothing else asks for
the kind of an end.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, TypeVar

from ..archive import broker
from ..archive.credentials import STORE_PROPERTIES, read_credentials
from ..archive.description import NoArchive
from ..archive.directory import Archive
from ..archive.groups import check_time, read_groups
from ..archive.urls import check_url, is_directory_url, shown_url
from ..errors import ConfigError, ShoalError
from ..net.address import Address, canonical_addresses, parse_bootstrap
from ..timing import DEFAULT_TIMING, Timing
from ..topic_partition import TopicPartition
from .answer_sizes import AnswerSizes
from .end_options import REMEDIES, WITHOUT_MEANING
from .opening import open_socket
from .properties import NO_MEANING, integer, java, one_of, read_into, table_of
from .security import (
    LEAST_ITERATIONS_PROPERTY,
    LEAST_SCRAM_ITERATIONS,
    SECURITY_PROPERTIES,
    PasswordLogin,
    Security,
    read_security,
)

__all__ = ["KNOWN_PROPERTIES", "ArchiveConfig", "ClientConfig", "IsolationLevel", "read_servers"]

T = TypeVar("T")

DEFAULT_CLIENT_ID = "shoal"

#: The timeout of short requests that delay others; it is less than the lease of a mirror's tasks.
SHORT_REQUEST_TIMEOUT_MS = 8_000


class IsolationLevel(Enum):
    """The visibility of aborted and open transactions; the value is the code in Fetch."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


#: The value of client.dns.lookup for brokers behind one name whose Kerberos principals have their own names.
_CANONICAL = "resolve_canonical_bootstrap_servers_only"

_LOOKUPS = frozenset({"use_all_dns_ips", _CANONICAL})

#: Properties that name Java classes, transactions or racks: shoal does not support them.
_REFUSED = frozenset({"transactional.id", "interceptor.classes", "client.rack"})


_DEFAULT_SIZES = AnswerSizes()


def _client_id(value: str) -> str:
    return value or DEFAULT_CLIENT_ID


def _isolation_level(value: str) -> IsolationLevel:
    return IsolationLevel[one_of("read_committed", "read_uncommitted")(value).upper()]


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """
    The configuration of one cluster's connections.

    Attributes:
        name: The cluster's name in errors: ``source``, ``destination`` or ``upstream``.
        bootstrap: The addresses of ``bootstrap.servers``.
        client_id: The name in the brokers' logs, metrics and quotas.
        request_timeout_ms: The limit of a connection, and of each response on it.
        isolation_level: The visibility of transactions in a fetch.
        security: TLS and SASL with their secrets; None for PLAINTEXT.
        answer_sizes: The bounds of the brokers' responses.
        timing: How long to wait for one of several brokers, and to write rows of a data frame.
        keeper: The cluster that holds the position of a restore; None for a cluster.
        kept_as: Returns the name under which an archived topic's position is kept, that of the copy: brokers
            take no offsets of topics that they do not have. None if no name differs.
        kind: The word for its kind.

    """

    name: str
    bootstrap: tuple[Address, ...]
    client_id: str = java("client.id", DEFAULT_CLIENT_ID, _client_id)
    request_timeout_ms: int = java("request.timeout.ms", "30000", integer(1))
    # Java's consumers default to read_uncommitted. If a mirror copied aborted records, they would be
    # committed records at the destination.
    isolation_level: IsolationLevel = java("isolation.level", "read_committed", _isolation_level)
    security: Security | None = None
    answer_sizes: AnswerSizes = _DEFAULT_SIZES
    timing: Timing = DEFAULT_TIMING
    keeper: ClientConfig | None = None
    kept_as: Callable[[str], str] | None = None
    kind: ClassVar[str] = "cluster"

    def check_options(self, end: str, given: Mapping[str, object]) -> None:
        """Raise ConfigError for the first option without a meaning; ``given`` says which are set."""
        for name in WITHOUT_MEANING.get((end, self.kind), ()):
            if given.get(name):
                remedy = REMEDIES.get(name, "Leave it out")
                raise ConfigError(f"{name} has no meaning if {end} is a {self.kind}. {remedy}")

    def choose(self, for_cluster: T, for_archive: T) -> T:
        """Return one of two ways to write to an end: the one for its kind."""
        return for_cluster

    @property
    def listeners(self) -> tuple[Address, ...]:
        """The addresses over a network by which it is reached first."""
        return self.bootstrap

    def acl_cluster(self, resource_type: str) -> str | None:
        """Return the cluster with the ACLs about such a resource of this end; None if there are none."""
        return self.name

    def impatient(self) -> ClientConfig:
        """Return the same configuration with a shorter timeout, for short requests that delay others."""
        return replace(
            self,
            request_timeout_ms=min(self.request_timeout_ms, SHORT_REQUEST_TIMEOUT_MS),
            keeper=self.keeper and self.keeper.impatient(),
        )

    def kept_by(
        self,
        other: ClientConfig,
        kept_as: Callable[[str], str] | None = None,
        groups_by_ms: int | None = None,
    ) -> ClientConfig:
        """Return the same configuration; for an archive, with the values that a restore needs."""
        return self

    def with_id(self, cluster_id: str | None) -> ClientConfig:
        """Return the same configuration; an archive must have this id on whichever machine it is opened."""
        return self

    def open_socket(self, address: Address, timeout_s: float) -> socket.socket:
        """Connect to a broker; see :func:`.opening.open_socket`."""
        return open_socket(address, timeout_s)

    def problem_of(self, about: TopicPartition | str | None) -> ShoalError | None:
        """Return the sentence behind an archive's last error; see :func:`shoal.archive.broker.problem_of`."""
        return None

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with an archive's files."""
        yield from ()

    def open_archive(self, *, creates: bool = False) -> Archive:
        """Open the archive; see :meth:`ArchiveConfig.open_archive`."""
        raise ConfigError(f"{self} is no directory. Give one")

    def check_archived_groups(self, topics: Iterable[str], *, may_lack: bool = False) -> None:
        """Raise ConfigError if an archive has no committed offsets of consumer groups in these topics."""

    def check_creations(self, topics: Iterable[str], by_ms: int) -> None:
        """Raise ConfigError if an archive would show a creation of a topic that began behind a time."""

    def pieces(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> list[tuple[TopicPartition, int, int]] | None:
        """Cut ranges of offsets where each piece is read best by a task of its own; None if nowhere."""
        return None

    def __str__(self) -> str:
        return f"the {self.name} cluster at {self.servers}"

    def broker_at(self, address: Address) -> str:
        """Return the name of a broker in messages."""
        return f"the {self.name} cluster's broker {address}"

    @classmethod
    def given(
        cls,
        name: str,
        given: ClientConfig | str | Mapping[str, str],
        on_warning: Callable[[str], object] | None,
    ) -> ClientConfig:
        """
        Read what a Python program gives: the bootstrap servers, or a Java client's properties.

        Raises:
            ConfigError: As :meth:`from_properties`.

        """
        if isinstance(given, ClientConfig):
            return given
        properties = {"bootstrap.servers": given} if isinstance(given, str) else given
        config, warnings = cls.from_properties(name, properties)
        for warning in warnings:
            if on_warning:
                on_warning(warning)
        return config

    @classmethod
    def from_properties(
        cls, name: str, properties: Mapping[str, str], *, where: str | None = None
    ) -> tuple[ClientConfig, list[str]]:
        """
        Read a Java client's properties.

        Args:
            name: The cluster's name in errors.
            properties: The properties by their Java names.
            where: Their source in errors and warnings, e.g. the file's name.

        Returns:
            The configuration, and a warning for each unknown property.

        Raises:
            ConfigError: A property is not supported, or a value is invalid.

        """
        where = where or f"the {name} cluster's configuration"
        warnings = []
        for key, value in properties.items():
            if key in _REFUSED or (key == "client.dns.lookup" and value not in _LOOKUPS):
                raise ConfigError(f"{where}: {key}={value} is not supported. Remove it")
            if key not in KNOWN_PROPERTIES:
                warnings.append(f"{where}: shoal ignores the unknown property {key!r}")
        if "bootstrap.servers" not in properties:
            raise ConfigError(f"{where}: no bootstrap.servers. Set them to HOST:PORT of some brokers")
        servers = properties["bootstrap.servers"].strip()
        bootstrap = read_servers(f"{where}: bootstrap.servers", servers)
        if not bootstrap:
            return ArchiveConfig.at_directory(name, servers, properties, where), warnings
        if properties.get("client.dns.lookup") == _CANONICAL:
            bootstrap = canonical_addresses(bootstrap)
        config = read_into(
            cls,
            properties,
            where,
            name=name,
            bootstrap=tuple(bootstrap),
            security=read_security(properties, where),
            answer_sizes=read_into(AnswerSizes, properties, where),
        )
        login = config.security.login if config.security else None
        if isinstance(login, PasswordLogin) and login.least_scram_iterations < LEAST_SCRAM_ITERATIONS:
            warnings.append(
                f"{where}: {LEAST_ITERATIONS_PROPERTY}={login.least_scram_iterations} lets a false "
                f"broker guess the password from a login. Store it again with {LEAST_SCRAM_ITERATIONS} "
                "iterations or more, and remove the property"
            )
        return config, warnings

    @property
    def request_timeout_s(self) -> float:
        """The request timeout in seconds."""
        return self.request_timeout_ms / 1000

    @property
    def principal(self) -> str | None:
        """The principal that the brokers see by their default rules, as ``User:NAME``; None if unknown."""
        if self.security is None:
            return None
        # Imported here: most connections never need it.
        from .security.principal import principal_of

        return principal_of(self.security)

    @property
    def servers(self) -> str:
        """The value of ``bootstrap.servers``: ``HOST:PORT[,HOST:PORT…]``, or the directory."""
        return ",".join(map(str, self.bootstrap))


def read_servers(option: str, servers: str) -> list[Address]:
    """
    Return the addresses that an option or a property has; none of a directory.

    Raises:
        ConfigError: The text is neither a list of addresses nor the URL or path of a directory.

    """
    if is_directory_url(servers):
        check_url(option, servers)
        return []
    try:
        return parse_bootstrap(servers)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from None


@dataclass(frozen=True, slots=True)
class ArchiveConfig(ClientConfig):
    """
    The configuration of an archive in place of a cluster; its only broker is in this process.

    Attributes:
        directory: Its URL or path.
        archive_id: The id that it must have, on whichever machine it is opened; None for any.
        groups_by_ms: The time whose committed offsets it shows; None for the newest.

    """

    directory: str = ""
    archive_id: str | None = None
    groups_by_ms: int | None = None
    kind: ClassVar[str] = "directory"

    @classmethod
    def at_directory(
        cls, name: str, directory: str, properties: Mapping[str, str], where: str
    ) -> ArchiveConfig:
        """
        Read the properties of an archive.

        Raises:
            ConfigError: As :func:`.read_credentials`; or a value is invalid.

        """
        store = read_credentials(properties, directory, where)
        return read_into(
            cls,
            properties,
            where,
            name=name,
            bootstrap=(Address(broker.ARCHIVE_HOST, broker.ARCHIVE_PORT),),
            security=None if store is None else Security(store=store),
            answer_sizes=read_into(AnswerSizes, properties, where),
            directory=directory,
        )

    @property
    def listeners(self) -> tuple[Address, ...]:
        """None: no network leads to the broker in this process."""
        return ()

    def choose(self, for_cluster: T, for_archive: T) -> T:
        """Return the way to write to an archive."""
        return for_archive

    def acl_cluster(self, resource_type: str) -> str | None:
        """Return the cluster that has the group of a restore: files have no ACLs."""
        return self.keeper.name if self.keeper is not None and resource_type == "group" else None

    def open_archive(self, *, creates: bool = False) -> Archive:
        """
        Open the archive; with ``creates``, make it if the directory is empty.

        Raises:
            ConfigError: The directory is no archive, or another one than :attr:`archive_id` says.
            ShoalError: The store does not answer, or refuses.

        """
        credentials = self.security.store if self.security else None
        return Archive.open(self.directory, credentials, self.archive_id, self.timing, creates=creates)

    def kept_by(
        self,
        other: ClientConfig,
        kept_as: Callable[[str], str] | None = None,
        groups_by_ms: int | None = None,
    ) -> ClientConfig:
        """Return the same configuration with what a restore needs; see :class:`ClientConfig`."""
        return replace(self, keeper=other, kept_as=kept_as, groups_by_ms=groups_by_ms)

    def with_id(self, cluster_id: str | None) -> ClientConfig:
        """Return the same configuration; the archive must have this id on whichever machine it is opened."""
        return replace(self, archive_id=cluster_id)

    def open_socket(self, address: Address, timeout_s: float) -> socket.socket:
        """Connect to the broker in this process."""
        return broker.connect(self.open_archive(), self.directory, self.groups_by_ms)

    def problem_of(self, about: TopicPartition | str | None) -> ShoalError | None:
        """Return why the last answer was an error."""
        return broker.problem_of(self.directory, about)

    def problems(self) -> Iterator[str]:
        """Yield what descriptions and sizes show."""
        with contextlib.suppress(NoArchive):  # the plan says so
            yield from self.open_archive().problems()

    def check_archived_groups(self, topics: Iterable[str], *, may_lack: bool = False) -> None:
        """Check that it has committed offsets of the time, or none, in the creations that are read."""
        archive = self.open_archive()
        written_ms = check_time(archive.store, self.groups_by_ms, may_lack=may_lack)
        if written_ms is None:
            return
        # Offsets that were archived before a topic was created again are those of another log.
        groups = read_groups(archive.store, self.groups_by_ms).values()
        archived = {each.topic for offsets in groups for each in offsets}
        archive.check_creations(archived.intersection(topics), written_ms, "the archived offsets of groups")

    def check_creations(self, topics: Iterable[str], by_ms: int) -> None:
        """Check that topics that were created again had their newest creation by a time."""
        self.open_archive().check_creations(topics, by_ms)

    def pieces(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> list[tuple[TopicPartition, int, int]] | None:
        """Cut ranges at the ends of its objects."""
        return self.open_archive().pieces(ranges)

    def __str__(self) -> str:
        return f"the {self.name} archive at {shown_url(self.directory)}"

    def broker_at(self, address: Address) -> str:
        """Return its own name."""
        return str(self)

    @property
    def servers(self) -> str:
        """The directory."""
        return self.directory


#: All properties that shoal reads, refuses or ignores.
KNOWN_PROPERTIES = (
    {"bootstrap.servers", "client.dns.lookup", *table_of(ClientConfig, AnswerSizes)}
    | NO_MEANING
    | SECURITY_PROPERTIES
    | STORE_PROPERTIES
    | _REFUSED
)
