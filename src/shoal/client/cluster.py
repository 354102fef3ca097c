"""A cluster: the addresses of its brokers, the leaders of its partitions, and a connection to each."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ..error_codes import ErrorCode
from ..errors import BeingDownloaded, BrokerError, Disconnected, ProtocolError, ShoalError, Unreachable
from ..net.address import Address
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from ..topic_partition import TopicPartition
from .backoff import Backoff
from .config import ClientConfig
from .connection import Connection
from .metadata import Metadata, PartitionMetadata, read_coordinators, read_metadata
from .opening import with_advertiser
from .refused_logins import logins

__all__ = ["Cluster", "is_transient", "patiently"]

T = TypeVar("T")

_GROUP_KEY_TYPE = 0

#: The number of groups in one FindCoordinator request. A group's name has 249 characters or so, and the
#: bound of the response is 128 KiB.
_COORDINATORS_AT_ONCE = 200

#: The broker of a bootstrap list that answered last: so a process meets a stalled broker once, and not with
#: each new Cluster. Only a hint, so threads may share it.
_answered: dict[tuple[Address, ...], Address] = {}

#: Addresses that this process has connected to. If one of them refuses later, its broker is down, and the
#: advertised address is right.
_reached: set[Address] = set()


def is_transient(error: object) -> bool:
    """Return whether this is an error, and a retry may succeed with new metadata or a new connection."""
    return isinstance(error, Disconnected) or (isinstance(error, BrokerError) and error.retriable)


def patiently(
    operation: Callable[[], T],
    *,
    patience_s: float,
    pause: Callable[[float], object] = time.sleep,
    can_heal: Callable[[ShoalError], bool] = is_transient,
) -> T:
    """
    Retry an operation with backoff, as long as its errors may be transient.

    Args:
        operation: The operation; it takes its connections from the cluster at each attempt.
        patience_s: The limit in seconds, after which the last error is raised. A download has no limit.
        pause: Waits for a number of seconds; if it raises, the retries end.
        can_heal: Returns whether an error may be transient.

    """
    deadline = time.monotonic() + patience_s
    backoff = Backoff()
    while True:
        try:
            return operation()
        except ShoalError as error:
            delay_s = backoff.next_delay_s()
            if isinstance(error, BeingDownloaded):
                deadline = time.monotonic() + patience_s
            if not can_heal(error) or time.monotonic() + delay_s > deadline:
                raise
            pause(delay_s)


class Cluster:
    """
    Connections to a cluster's brokers, opened with the first request to each.

    They are for the control plane: one connection for each broker, one request at a time. The caller owns the
    connections of :meth:`connect`, which carry batches. Only one thread may use a cluster, except for the
    methods that say so.
    """

    def __init__(self, config: ClientConfig, known: Metadata | None = None) -> None:
        """
        Prepare; the first request opens a connection.

        Args:
            config: Addresses, credentials and timeouts.
            known: The metadata of another Cluster, as a start.

        """
        self.config = config
        self._connections: dict[int, Connection] = {}
        self._anybody: Connection | None = None
        self._given: list[Connection] = []
        self._metadata = known
        self._coordinators: dict[str, int] = {}
        #: The server that returned the metadata, if this object requested it.
        self._told_by: Address | None = None
        self._connecting: Address | None = None
        self._begun: Connection | None = None
        self._keeper = None if config.keeper is None else Cluster(config.keeper)

    def patiently(self, operation: Callable[[], T]) -> T:
        """Retry an operation with this cluster, as :func:`patiently` does, for the time of its options."""
        return patiently(operation, patience_s=self.config.timing.patience_s)

    @property
    def keeper(self) -> Cluster:
        """The cluster that holds the groups: this one, unless this is an archive."""
        return self._keeper or self

    @property
    def name(self) -> str:
        """The cluster's name in errors; see :class:`ClientConfig`."""
        return self.config.name

    def __str__(self) -> str:
        return str(self.config)

    # Metadata

    def refresh(self, topics: Iterable[str] | None = None) -> Metadata:
        """
        Request the metadata of some topics, of none, or of all (None).

        If only some are requested, the known metadata of the others stays.

        Raises:
            Disconnected: No broker that we know of answers.

        """
        topic = request_class(ApiKey.METADATA).MetadataRequestTopic
        asked = None if topics is None else [topic(name=name) for name in topics]
        response = self.ask_anyone(ApiKey.METADATA, topics=asked, allow_auto_topic_creation=False)
        answer = read_metadata(response)
        self._told_by = self._anybody.address if self._anybody else None
        if asked is not None and self._metadata:
            answer = answer.with_others_from(self._metadata)
        self._metadata = answer
        return answer

    def ask_anyone(self, api_key: ApiKey, **fields: Any) -> Any:
        """
        Send a request that any broker can answer, to one after the other until one answers.

        A broker that stalls has one second as long as there are others. If all of them stall, each has its
        full timeout.

        Raises:
            Disconnected: No broker that we know of answers.

        """
        return self._first(lambda connection: connection.request(api_key, **fields))

    def any_connection(self) -> Connection:
        """Return a connection to any broker that can be reached, for a short check."""
        return self._first(lambda connection: connection)

    def _first(self, ask: Callable[[Connection], T]) -> T:
        """Return the answer of the first broker that has one."""
        errors: list[ShoalError] = []
        bootstrap = self.config.bootstrap
        for address, timeout_s in self._candidates():
            try:
                answer = ask(self._to_anybody(address, timeout_s))
            except (Disconnected, ProtocolError) as error:
                errors.append(error)
                if _answered.get(bootstrap) == address:
                    _answered.pop(bootstrap, None)
            else:
                _answered[bootstrap] = address
                return answer
        raise self._nobody_answers(errors)

    def _candidates(self) -> Iterator[tuple[Address, float]]:
        """Yield each broker that may answer, with the limit of its answer."""
        known = self._metadata.brokers.values() if self._metadata else ()
        answered = _answered.get(self.config.bootstrap)
        addresses = list(dict.fromkeys([*self.config.bootstrap, *known]))
        addresses.sort(key=lambda address: address != answered)
        patience_s = self.config.request_timeout_s
        if self._anybody and not self._anybody.closed:
            tried = self._anybody.address
            yield tried, patience_s
            # The broker may have closed an idle connection: try it once more, but last.
            addresses.sort(key=lambda address: address == tried)
        anyone_s = self.config.timing.anyone_patience_s
        quick_s = min(anyone_s, patience_s) if len(addresses) > 1 else patience_s
        slow = []
        for address in addresses:
            asked_at = time.monotonic()
            yield address, quick_s
            if time.monotonic() - asked_at >= quick_s:
                slow.append(address)
        yield from ((address, patience_s) for address in slow if quick_s < patience_s)

    def _to_anybody(self, address: Address, timeout_s: float) -> Connection:
        """Return the open connection for such requests if it is one to this broker; else replace it."""
        connection = self._anybody
        if connection is None or connection.closed or connection.address != address:
            opened = self._open(address, timeout_s=timeout_s)
            if connection is not None:
                connection.close()
            connection = self._anybody = opened
        return connection

    def _nobody_answers(self, errors: Sequence[ShoalError]) -> ShoalError:
        if (problem := self.config.problem_of(None)) is not None:
            return problem
        said = (each.reason if isinstance(each, Disconnected) else str(each) for each in errors)
        reasons = ", ".join(dict.fromkeys(said)) or "no broker is known"
        if errors and all(isinstance(each, Unreachable) and each.unresolved for each in errors):
            return Unreachable(str(self), reasons, unresolved=True)
        return Disconnected(str(self), reasons)

    @property
    def known(self) -> Metadata | None:
        """The newest metadata without a request, or None."""
        return self._metadata

    @property
    def metadata(self) -> Metadata:
        """The newest metadata; requests the brokers if there is none."""
        return self._metadata or self.refresh([])

    def partition(self, partition: TopicPartition) -> PartitionMetadata:
        """
        Return the metadata of a partition that has a leader.

        Raises:
            BrokerError: The partition is unknown, or has no leader now; retriable.

        """
        topic = self.metadata.topics.get(partition.topic)
        found = topic.partitions.get(partition.partition) if topic else None
        if found is None:
            code = self.metadata.errors.get(partition.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise BrokerError(code, f"{partition} on {self}")
        if found.leader not in self.metadata.brokers:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} on {self}")
        return found

    def by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, ShoalError]]:
        """Return the partitions of each leader, and the error of each partition without one."""
        led: dict[int, list[TopicPartition]] = {}
        errors: dict[TopicPartition, ShoalError] = {}
        for partition in partitions:
            try:
                led.setdefault(self.partition(partition).leader, []).append(partition)
            except ShoalError as error:
                errors[partition] = error
        return led, errors

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """Return a topic's id from the metadata; None if they have none."""
        found = self.metadata.topics.get(topic)
        return found.topic_id if found else None

    # Connections

    def _open(
        self,
        address: Address,
        *,
        timeout_s: float | None = None,
        abort_on_close: bool = False,
        client_id: str | None = None,
    ) -> Connection:
        self._connecting = address
        security = self.config.security
        try:
            with logins.attempt(self.config.bootstrap, address, security, self.config.broker_at(address)):
                return Connection(
                    address,
                    client_id=client_id or self.config.client_id,
                    timeout_s=self.config.request_timeout_s if timeout_s is None else timeout_s,
                    abort_on_close=abort_on_close,
                    security=security,
                    on_begun=self._begin,
                    sizes=self.config.answer_sizes,
                    open_with=self.config.open_socket,
                )
        except Unreachable as error:
            raise self.explain(address, error) from error
        finally:
            self._connecting = self._begun = None

    def explain(self, address: Address, error: Unreachable) -> Unreachable:
        """Add the server that advertises the address, unless it is a bootstrap server or worked before."""
        if address in self.config.bootstrap or (address in _reached and not error.unresolved):
            return error
        return with_advertiser(error, self.name, str(self._told_by or self.config.servers))

    def _begin(self, connection: Connection) -> None:
        _reached.add(connection.address)
        self._begun = connection

    def connect(
        self,
        node_id: int,
        *,
        abort_on_close: bool = False,
        client_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Connection:
        """
        Open a connection that the caller owns.

        Args:
            node_id: The broker's node id.
            abort_on_close: See :class:`Connection`.
            client_id: By default the configuration's.
            timeout_s: By default the configuration's. Longer if a broker answers late on purpose.

        """
        connection = self._open(
            self._address(node_id), abort_on_close=abort_on_close, client_id=client_id, timeout_s=timeout_s
        )
        # Replaced, not changed: another thread may read it.
        self._given = [*(each for each in self._given if not each.closed), connection]
        return connection

    def connection(self, node_id: int) -> Connection:
        """Return the control-plane connection to a broker."""
        connection = self._connections.get(node_id)
        if connection and connection.address != self._address(node_id):
            connection.close()
        if connection is None or connection.closed:
            connection = self._connections[node_id] = self._open(self._address(node_id))
        return connection

    def controller(self) -> Connection:
        """Return a connection to the controller, or to any broker if the metadata name none."""
        brokers = self.metadata.brokers
        named = self.metadata.controller
        return self.connection(named if named in brokers else next(iter(brokers), named))

    def _address(self, node_id: int) -> Address:
        address = self.metadata.brokers.get(node_id)
        if address is None:
            # The id of a coordinator that moved may be known before its address.
            raise Disconnected(f"node {node_id} of {self}", "the cluster's metadata does not have it")
        return address

    def coordinator(self, group: str) -> Connection:
        """Return a connection to a group's coordinator; see :meth:`forget_coordinator`."""
        return self.connection(self.coordinator_node(group))

    def coordinator_node(self, group: str) -> int:
        """Return the node id of a group's coordinator; request it if it is unknown."""
        for error in self.find_coordinators([group]).values():
            raise error
        return self._coordinators[group]

    def find_coordinators(self, groups: Iterable[str]) -> dict[str, BrokerError]:
        """
        Find the coordinators of the groups whose coordinator is unknown, many in a request (KIP-699).

        Returns:
            The error of each group without a known coordinator.

        Raises:
            Disconnected: No broker that we know of answers.

        """
        unknown = [each for each in groups if self._coordinators.get(each) not in self.metadata.brokers]
        errors: dict[str, BrokerError] = {}
        asked = unknown
        while asked:
            some = asked[:_COORDINATORS_AT_ONCE]
            response = self.ask_anyone(
                ApiKey.FIND_COORDINATOR, key=some[0], coordinator_keys=some, key_type=_GROUP_KEY_TYPE
            )
            found = read_coordinators(response, some, str(self))
            asked = [each for each in asked if each not in found]
            errors |= {each: answer for each, answer in found.items() if isinstance(answer, BrokerError)}
            self._coordinators |= {each: node for each, node in found.items() if isinstance(node, int)}
        found_now = (self._coordinators[each] for each in unknown if each not in errors)
        if not self.metadata.brokers.keys() >= set(found_now):
            self.refresh([])
        return errors

    def remember_coordinator(self, group: str, node_id: int) -> None:
        """Send the next requests of a group to this broker."""
        self._coordinators[group] = node_id

    def forget_coordinator(self, group: str) -> None:
        """Request the coordinator again with the next request of the group."""
        self._coordinators.pop(group, None)

    @property
    def open(self) -> list[Connection]:
        """All open connections, also those that callers own; any thread may read this."""
        return [each for each in (*self._given, *self._all()) if not each.closed]

    @property
    def connecting(self) -> Address | None:
        """The address of a connection or login in progress, or None; any thread may read this."""
        return self._connecting

    def _all(self) -> list[Connection]:
        anybody = [self._anybody] if self._anybody else []
        return [*self._connections.values(), *anybody]

    def abort(self) -> None:
        """End the wait of the thread that uses this cluster (:meth:`Connection.abort`)."""
        if self._keeper is not None:
            self._keeper.abort()
        self.abort_connecting()
        for connection in self.open:
            connection.abort()

    def abort_connecting(self) -> None:
        """End the wait of the thread that uses this cluster for a TLS handshake or a login."""
        begun = self._begun
        if begun is not None:
            begun.abort()

    def close(self) -> None:
        """Close the connections, except those that callers own."""
        if self._keeper is not None:
            self._keeper.close()
        for connection in self._all():
            connection.close()
        self._connections.clear()
        self._anybody = None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
