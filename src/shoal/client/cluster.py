"""A cluster: where its brokers are, who leads what, and a connection to each."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ..error_codes import ErrorCode
from ..errors import BrokerError, Disconnected, ProtocolError, ShoalError, Unreachable, raise_for
from ..net.address import Address
from ..protocol.apis import ApiKey
from ..protocol.codec import request_class
from ..topic_partition import TopicPartition
from .advertised import with_advertiser
from .backoff import Backoff
from .config import ClientConfig
from .connection import Connection
from .metadata import Metadata, PartitionMetadata, read_metadata
from .refused_logins import logins

__all__ = ["Cluster", "is_transient", "patiently"]

T = TypeVar("T")

_GROUP_KEY_TYPE = 0

#: How long one broker may take to connect, and to answer, while any other could be asked instead.
_ANYONE_PATIENCE_S = 1.0

#: Who of a bootstrap list answered last. A broker that stalls is met once in a process then, not by
#: each Cluster anew. Only a hint, so threads may share it.
_answered: dict[tuple[Address, ...], Address] = {}

#: Addresses that were connected to in this process. If one of them refuses later, its broker is down, and
#: its listener is not at fault.
_reached: set[Address] = set()


def is_transient(error: ShoalError) -> bool:
    """Whether time, new metadata or a new connection can heal it."""
    return isinstance(error, Disconnected) or (isinstance(error, BrokerError) and error.retriable)


def patiently(
    operation: Callable[[], T],
    *,
    patience_s: float,
    pause: Callable[[float], object] = time.sleep,
    can_heal: Callable[[ShoalError], bool] = is_transient,
) -> T:
    """
    Repeat an operation while it fails for a reason that time can heal.

    Args:
        operation: What to do; finds its connections anew at each try.
        patience_s: After this long the last error is raised.
        pause: Waits so many seconds; may raise to give up earlier.
        can_heal: Says which errors time can heal.

    """
    deadline = time.monotonic() + patience_s
    backoff = Backoff()
    while True:
        try:
            return operation()
        except ShoalError as error:
            delay_s = backoff.next_delay_s()
            if not can_heal(error) or time.monotonic() + delay_s > deadline:
                raise
            pause(delay_s)


class Cluster:
    """
    Connections to a cluster's brokers, made when they are needed.

    For the control plane: one connection a broker, one request at a time.
    The connections that carry batches are opened with :meth:`connect` and
    belong to who asked. Not for sharing between threads.

    """

    def __init__(self, config: ClientConfig, known: Metadata | None = None) -> None:
        """
        Make connections when they are needed.

        Args:
            config: How to reach the cluster.
            known: What another knows of it; to be refreshed as one's own would be.

        """
        self.config = config
        self._connections: dict[int, Connection] = {}
        self._anybody: Connection | None = None
        self._given: list[Connection] = []
        self._metadata = known
        self._coordinators: dict[str, int] = {}
        #: The server whose metadata this is, if it was asked for here.
        self._told_by: Address | None = None
        self._connecting: Address | None = None
        self._begun: Connection | None = None

    @property
    def name(self) -> str:
        """See :class:`ClientConfig`."""
        return self.config.name

    def __str__(self) -> str:
        return f"the {self.name} cluster at {self.config.servers}"

    # Metadata

    def refresh(self, topics: Iterable[str] | None = None) -> Metadata:
        """
        Ask for metadata: of some topics (none is allowed), or of all.

        What was known of other topics is kept where only some are asked for.

        Raises:
            Disconnected: No broker that we know of answers.

        """
        if topics is not None:
            topics = list(topics)
        topic = request_class(ApiKey.METADATA).MetadataRequestTopic
        asked = None if topics is None else [topic(name=name) for name in topics]
        response = self.ask_anyone(ApiKey.METADATA, topics=asked, allow_auto_topic_creation=False)
        answer = read_metadata(response)
        self._told_by = self._anybody.address if self._anybody else None
        if topics is not None and self._metadata:
            answer = answer.with_others_from(self._metadata)
        self._metadata = answer
        return answer

    def ask_anyone(self, api_key: ApiKey, **fields: Any) -> Any:
        """
        Ask what any broker can answer: one after the other, until one does.

        While there are others to ask, a broker that stalls is given up after
        some seconds; it has its full time when all of them do.

        Raises:
            Disconnected: No broker that we know of answers.

        """
        errors: list[ShoalError] = []
        for connection in self._anyone(errors):
            try:
                response = connection.request(api_key, **fields)
            except (Disconnected, ProtocolError) as error:
                self._remember_failure(connection.address, error, errors)
            else:
                _answered[self.config.bootstrap] = connection.address
                return response
        raise self._nobody_answers(errors)

    def _anyone(self, errors: list[ShoalError]) -> Iterator[Connection]:
        """Yield a connection to each broker that may answer, until the caller has its answer."""
        addresses = self._addresses()
        if self._anybody and not self._anybody.closed:
            tried = self._anybody.address
            yield self._anybody
            # It may have closed an idle connection: once more, but last.
            addresses.sort(key=lambda address: address == tried)
        patience_s = self.config.request_timeout_s
        quick_s = min(_ANYONE_PATIENCE_S, patience_s) if len(addresses) > 1 else patience_s
        slow = []
        for address in addresses:
            asked_at = time.monotonic()
            yield from self._try(address, quick_s, errors)
            if time.monotonic() - asked_at >= quick_s:
                slow.append(address)
        if quick_s < patience_s:
            for address in slow:
                yield from self._try(address, patience_s, errors)

    def _addresses(self) -> list[Address]:
        """Return whom to ask, who answered last first."""
        known = self._metadata.brokers.values() if self._metadata else ()
        addresses = list(dict.fromkeys([*self.config.bootstrap, *known]))
        answered = _answered.get(self.config.bootstrap)
        return sorted(addresses, key=lambda address: address != answered)

    def _try(self, address: Address, timeout_s: float, errors: list[ShoalError]) -> Iterator[Connection]:
        try:
            opened = self._open(address, timeout_s=timeout_s)
        except (Disconnected, ProtocolError) as error:
            self._remember_failure(address, error, errors)
            return
        if self._anybody:
            self._anybody.close()
        self._anybody = opened
        yield opened

    def _remember_failure(self, address: Address, error: ShoalError, errors: list[ShoalError]) -> None:
        errors.append(error)
        if _answered.get(self.config.bootstrap) == address:
            _answered.pop(self.config.bootstrap, None)

    def _nobody_answers(self, errors: Sequence[ShoalError]) -> Disconnected:
        reasons = "; ".join(dict.fromkeys(map(_reason, errors))) or "no broker is known"
        if errors and all(isinstance(each, Unreachable) and each.unresolved for each in errors):
            return Unreachable(str(self), reasons, unresolved=True)
        return Disconnected(str(self), reasons)

    @property
    def known(self) -> Metadata | None:
        """The newest metadata, where there is any; asks nobody."""
        return self._metadata

    @property
    def metadata(self) -> Metadata:
        """The newest metadata; asks for the brokers if nothing was asked before."""
        return self._metadata or self.refresh([])

    def partition(self, partition: TopicPartition) -> PartitionMetadata:
        """
        Return what is known of a partition that has a leader.

        Raises:
            BrokerError: Retriable: it is not known, or has no leader now.

        """
        topic = self.metadata.topics.get(partition.topic)
        found = topic.partitions.get(partition.partition) if topic else None
        if found is None:
            code = self.metadata.errors.get(partition.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise BrokerError(code, f"{partition} on {self}")
        if found.leader not in self.metadata.brokers:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} on {self}")
        return found

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """Return a topic's id as the metadata have it; None if they have none."""
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
        where = f"the {self.name} cluster's broker {address}"
        try:
            with logins.attempt(self.config.bootstrap, address, security, where):
                return Connection(
                    address,
                    client_id=client_id or self.config.client_id,
                    timeout_s=self.config.request_timeout_s if timeout_s is None else timeout_s,
                    abort_on_close=abort_on_close,
                    security=security,
                    on_begun=self._begin,
                    sizes=self.config.answer_sizes,
                )
        except Unreachable as error:
            raise self.explain(address, error) from error
        finally:
            self._connecting = self._begun = None

    def explain(self, address: Address, error: Unreachable) -> Unreachable:
        """Add to an error which server advertises the address, unless it was given, or worked before."""
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
            node_id: The broker's.
            abort_on_close: See :class:`Connection`.
            client_id: By default the configuration's.
            timeout_s: Likewise; longer, for what a broker answers late on purpose.

        """
        connection = self._open(
            self._address(node_id), abort_on_close=abort_on_close, client_id=client_id, timeout_s=timeout_s
        )
        # Replaced, not changed: another thread may look.
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

    def any_connection(self) -> Connection:
        """Return a connection to whoever answers, for a look: it has little patience."""
        errors: list[ShoalError] = []
        for connection in self._anyone(errors):
            return connection
        raise self._nobody_answers(errors)

    def controller(self) -> Connection:
        """Return a connection to the broker that takes changes of topics; to any, where none is named."""
        brokers = self.metadata.brokers
        named = self.metadata.controller
        return self.connection(named if named in brokers else next(iter(brokers), named))

    def _address(self, node_id: int) -> Address:
        address = self.metadata.brokers.get(node_id)
        if address is None:
            # A coordinator that moved may be known before its address is.
            raise Disconnected(f"node {node_id} of {self}", "the cluster's metadata does not have it")
        return address

    def coordinator(self, group: str) -> Connection:
        """Return a connection to a group's coordinator; :meth:`forget_coordinator` when it says it is not."""
        return self.connection(self.coordinator_node(group))

    def coordinator_node(self, group: str) -> int:
        """Return a group's coordinator by node id, as it was found last."""
        node_id = self._coordinators.get(group)
        if node_id is None or node_id not in self.metadata.brokers:
            response = self.ask_anyone(ApiKey.FIND_COORDINATOR, key=group, key_type=_GROUP_KEY_TYPE)
            raise_for(
                response.error_code, f"the coordinator of group {group!r} on {self}", response.error_message
            )
            node_id = self._coordinators[group] = response.node_id
            if node_id not in self.metadata.brokers:
                self.refresh([])
        return node_id

    def forget_coordinator(self, group: str) -> None:
        self._coordinators.pop(group, None)

    @property
    def open(self) -> list[Connection]:
        """All connections that are open, those that others own included; for another thread's look."""
        return [each for each in (*self._given, *self._all()) if not each.closed]

    @property
    def connecting(self) -> Address | None:
        """Who is being connected to, or logged in to; for another thread's look."""
        return self._connecting

    def _all(self) -> list[Connection]:
        anybody = [self._anybody] if self._anybody else []
        return [*self._connections.values(), *anybody]

    def abort(self) -> None:
        """Let another thread that waits for an answer fail at once (:meth:`Connection.abort`)."""
        self.abort_connecting()
        for connection in self.open:
            connection.abort()

    def abort_connecting(self) -> None:
        """Let another thread fail at once that waits for a broker's first answers."""
        begun = self._begun
        if begun is not None:
            begun.abort()

    def close(self) -> None:
        for connection in self._all():
            connection.close()
        self._connections.clear()
        self._anybody = None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _reason(error: ShoalError) -> str:
    return error.reason if isinstance(error, Disconnected) else str(error)
