"""The configuration of a cluster's connections, by the properties of Kafka's Java clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from ..archive.credentials import STORE_PROPERTIES, read_credentials
from ..archive.directory import Archive
from ..archive.urls import check_url, is_directory_url
from ..errors import ConfigError
from ..net.address import Address, canonical_addresses, parse_bootstrap
from ..timing import DEFAULT_TIMING, Timing
from .answer_sizes import AnswerSizes
from .properties import integer, java, one_of, read_into, table_of
from .security import (
    LEAST_ITERATIONS_PROPERTY,
    LEAST_SCRAM_ITERATIONS,
    SECURITY_PROPERTIES,
    PasswordLogin,
    Security,
    read_security,
)

__all__ = ["KNOWN_PROPERTIES", "ClientConfig", "IsolationLevel"]

DEFAULT_CLIENT_ID = "shoal"

#: The only broker of an archive, which is reached in this process alone.
ARCHIVE_SERVER = "archive.invalid:9092"

#: The timeout of short requests that delay others; it is less than the lease of a mirror's tasks.
_SHORT_REQUEST_TIMEOUT_MS = 8_000


class IsolationLevel(Enum):
    """The visibility of aborted and open transactions; the value is the code in Fetch."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


#: Properties of Java's consumers and producers without an effect here: shoal has other settings for their
#: purpose, or no such feature.
_NO_MEANING = frozenset(
    """
    acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset
    batch.size buffer.memory compression.gzip.level compression.lz4.level compression.type
    compression.zstd.level connections.max.idle.ms delivery.timeout.ms enable.auto.commit
    enable.idempotence enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms
    fetch.min.bytes group.id group.instance.id group.protocol heartbeat.interval.ms key.deserializer
    key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records max.request.size metadata.max.age.ms
    metadata.max.idle.ms metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms partition.assignment.strategy partitioner.class receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms retries retry.backoff.max.ms retry.backoff.ms
    send.buffer.bytes session.timeout.ms socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms transaction.timeout.ms value.deserializer value.serializer
    check.crcs default.api.timeout.ms
    """.split()  # noqa: SIM905
)

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
        directory: The URL or path of an archive in place of a cluster; None for a cluster.
        archive_id: The id that the archive must have; None for any.
        keeper: The cluster that holds the position of a restore; None for a cluster.
        kept_as: Returns the name under which an archived topic's position is kept, that of the copy: brokers
            take no offsets of topics that they do not have. None if no name differs.
        groups_by_ms: The time whose committed offsets an archive shows; None for the newest.

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
    directory: str | None = None
    archive_id: str | None = None
    keeper: ClientConfig | None = None
    kept_as: Callable[[str], str] | None = None
    groups_by_ms: int | None = None

    def impatient(self) -> ClientConfig:
        """Return the same configuration with a shorter timeout, for short requests that delay others."""
        return replace(
            self,
            request_timeout_ms=min(self.request_timeout_ms, _SHORT_REQUEST_TIMEOUT_MS),
            keeper=self.keeper and self.keeper.impatient(),
        )

    def kept_by(
        self,
        other: ClientConfig,
        kept_as: Callable[[str], str] | None = None,
        groups_by_ms: int | None = None,
    ) -> ClientConfig:
        """Return the same configuration; for an archive, with the values that a restore needs."""
        if self.directory is None:
            return self
        return replace(self, keeper=other, kept_as=kept_as, groups_by_ms=groups_by_ms)

    def with_id(self, cluster_id: str | None) -> ClientConfig:
        """Return the same configuration; an archive must have this id on whichever machine it is opened."""
        return self if self.directory is None else replace(self, archive_id=cluster_id)

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
        directory = servers if is_directory_url(servers) else None
        try:
            if directory is not None:
                check_url(f"{where}:", directory)
            bootstrap = parse_bootstrap(ARCHIVE_SERVER if directory is not None else servers)
        except ValueError as error:
            raise ConfigError(f"{where}: bootstrap.servers: {error}") from None
        if properties.get("client.dns.lookup") == _CANONICAL:
            bootstrap = canonical_addresses(bootstrap)
        config = read_into(
            cls,
            properties,
            where,
            name=name,
            bootstrap=tuple(bootstrap),
            security=_security(properties, directory, where),
            answer_sizes=read_into(AnswerSizes, properties, where),
            directory=directory,
        )
        login = config.security.login if config.security else None
        if isinstance(login, PasswordLogin) and login.least_scram_iterations < LEAST_SCRAM_ITERATIONS:
            warnings.append(
                f"{where}: {LEAST_ITERATIONS_PROPERTY}={login.least_scram_iterations} lets a false "
                f"broker guess the password from a login. Store it again with {LEAST_SCRAM_ITERATIONS} "
                "iterations or more, and remove the property"
            )
        return config, warnings

    def open_archive(self, *, creates: bool = False) -> Archive:
        """
        Open the archive that this is; with ``creates``, make it if the directory is empty.

        Raises:
            ConfigError: The directory is no archive, or another one than :attr:`archive_id` says.
            ShoalError: The store does not answer, or refuses.

        """
        assert self.directory is not None, "it is an archive"
        credentials = self.security.store if self.security else None
        if creates:
            return Archive.create(self.directory, credentials, self.timing)
        return Archive.open(self.directory, credentials, self.archive_id, self.timing)

    @property
    def has_acls(self) -> bool:
        """Whether it has topics and groups that ACLs protect; an archive has files."""
        return self.directory is None

    @property
    def request_timeout_s(self) -> float:
        """The request timeout in seconds."""
        return self.request_timeout_ms / 1000

    @property
    def principal(self) -> str | None:
        """The principal that the brokers see by their default rules, as ``User:NAME``; None if unknown."""
        if self.security is None or self.directory is not None:
            return None
        # Imported here: most connections never need it.
        from .security.principal import principal_of

        return principal_of(self.security)

    @property
    def servers(self) -> str:
        """The value of ``bootstrap.servers``: ``HOST:PORT[,HOST:PORT…]``, or the directory."""
        return self.directory or ",".join(map(str, self.bootstrap))


#: All properties that shoal reads, refuses or ignores.
KNOWN_PROPERTIES = (
    {"bootstrap.servers", "client.dns.lookup", *table_of(ClientConfig, AnswerSizes)}
    | _NO_MEANING
    | SECURITY_PROPERTIES
    | STORE_PROPERTIES
    | _REFUSED
)


def _security(properties: Mapping[str, str], directory: str | None, where: str) -> Security | None:
    if directory is None:
        return read_security(properties, where)
    store = read_credentials(properties, directory, where)
    return None if store is None else Security(store=store)
