"""The embedded broker: what a test or the demo starts."""

from __future__ import annotations

import base64
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self

from ..errors import ConfigError
from ..net.listener import addresses_of
from ..net.memory_budget import MemoryBudget
from ..net.turns import Turns
from ..printable import logger
from .api_error import ApiError
from .apis.call import Call
from .apis.faults import Faults
from .apis.table import APIS, APIS_WITH_OLD_VERSIONS
from .clock import now_ms
from .config import BrokerConfig
from .coordination.fetch_sessions import FetchSessions
from .coordination.groups import Groups
from .coordination.leaders import Leaders, Node
from .coordination.purgatory import NobodyWaits, Purgatory
from .coordination.transactions import ProducerIds, Transactions
from .serving.connection_quotas import ConnectionQuotas
from .serving.dispatch import answer
from .serving.housekeeping import Chore, Housekeeper
from .serving.server import Server
from .storage.data_directory import DataDirectory
from .storage.journal import Journal
from .storage.log import Log
from .topics import Topic, Topics

__all__ = ["Broker"]

_log = logger("shoal.broker")

_TOO_SLOW = (
    "a request of {size} bytes from {host} was not received while others waited for memory "
    "(queued.max.request.bytes is {most}); its connection was closed"
)

#: After its only log directory failed, a broker answers for so long before it stops, KAFKA_STORAGE_ERROR.
#: Kafka halts at once, in the middle of its answers.
_LAST_ANSWERS_S = 1.0

#: How often sessions and transactions are looked at, in seconds.
_TIMEOUT_CHECK_S = 0.1


class Broker:
    """
    A Kafka cluster of one broker, in threads of this process.

    For demos, tests and development; it listens on the loopback interface
    only, unless it is told otherwise, since it asks nobody who they are. Use
    it as a context manager, or call :meth:`start` and :meth:`stop`.

    Attributes:
        host: What it listens on, and tells clients to connect to.
        node_id: Its id in the cluster.
        cluster_id: The cluster's.
        config: The broker's settings by Kafka's names, as text, defaults included.
        topics: The topics with their logs.
        groups: The consumer groups with their offsets.
        transactions: The transactional ids.
        leaders: Who leads which partition; alone, this broker leads all of them.
        journal: Where they and the settings are kept.
        producer_ids: Where new producer ids come from.
        fetch_sessions: What clients want to fetch.
        large_requests: The turns at requests that take much memory.
        faults: What shall go wrong (see :class:`~shoal.broker.apis.faults.Faults`).

    """

    config: BrokerConfig
    cluster_id: str
    journal: Journal
    producer_ids: ProducerIds
    topics: Topics
    groups: Groups
    transactions: Transactions
    leaders: Leaders

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        cluster_id: str | None = None,
        config: Mapping[str, str] | None = None,
        node_id: int = 1,
        data: Path | None = None,
        allow_any_address: bool = False,
        beside: Broker | None = None,
    ) -> None:
        """
        Make a broker; it listens once it is started.

        Args:
            host: An address of this machine, or a name for one; clients are told to connect to it.
            port: 0 for a free one.
            cluster_id: A random one if it is not given.
            config: Broker settings that are not the defaults, as text.
            node_id: Its id in the cluster.
            data: The directory where everything is kept; what is in it is
                read now. None keeps everything in memory.
            allow_any_address: Listen also where other machines can connect.
            beside: Another node of the same cluster, whose settings and data
                this one shares (see :class:`~shoal.broker.cluster.BrokerCluster`).

        Raises:
            ConfigError: A setting is unknown or wrong, the address is not a
                loopback one, or the directory is another broker's or damaged.

        """
        _check_address(host, allow_any_address)
        try:
            self.config = beside.config if beside is not None else BrokerConfig(config or {})
        except ApiError as refused:
            raise ConfigError(f"broker: {refused.message}") from refused
        self.host = host
        self.node_id = node_id
        self.apis = APIS_WITH_OLD_VERSIONS if self.config["shoal.old.versions"].lower() == "true" else APIS
        self.faults = Faults()
        self._data = DataDirectory(data) if data is not None else None
        try:
            if beside is not None:
                self._share_data(beside)
            else:
                self._read_data(cluster_id)
        except BaseException as error:
            if self._data is not None:
                self._data.release()
            if isinstance(error, ApiError):
                raise ConfigError(f"broker: {error.message}") from error
            if isinstance(error, OSError) and data is not None:
                raise ConfigError(f"{data}: it cannot be read: {error.strerror}") from error
            raise
        self.fetch_sessions = FetchSessions(int(self.config["max.incremental.fetch.session.cache.slots"]))
        self.purgatory = Purgatory()
        self._halted: list[Callable[[], None]] = []
        self.topics.failure.when_failed(self._begin_to_halt)
        self._server = Server(
            host,
            port,
            partial(answer, self),
            max_request_bytes=int(self.config["socket.request.max.bytes"]),
            max_idle_ms=int(self.config["connections.max.idle.ms"]),
            memory=MemoryBudget(int(self.config["queued.max.request.bytes"]), _log.warning, _TOO_SLOW),
            quotas=ConnectionQuotas(self.config),
        )
        self.large_requests = Turns(1)
        self._housekeeper = Housekeeper(
            [
                Chore(_TIMEOUT_CHECK_S, self.groups.expire),
                Chore(_TIMEOUT_CHECK_S, self.transactions.expire),
                Chore(
                    self._seconds("transaction.remove.expired.transaction.cleanup.interval.ms"),
                    self.transactions.forget_unused,
                ),
                Chore(
                    self._seconds("producer.id.expiration.check.interval.ms"), self._forget_expired_producers
                ),
                Chore(self._seconds("log.retention.check.interval.ms"), self._delete_old_segments),
                Chore(self._seconds("offsets.retention.check.interval.ms"), self.groups.forget_old_offsets),
            ]
        )
        self._was_started = False

    def _share_data(self, other: Broker) -> None:
        self.cluster_id = other.cluster_id
        self.journal = other.journal
        self.producer_ids = other.producer_ids
        self.topics = other.topics
        self.groups = other.groups
        self.transactions = other.transactions
        self.leaders = other.leaders

    def _read_data(self, cluster_id: str | None) -> None:
        """Begin with what the directory holds, or with nothing."""
        data = self._data
        self.cluster_id = cluster_id or _random_cluster_id()
        if data is not None:
            self.cluster_id = data.check_identity(cluster_id, self.node_id, self.cluster_id)
        self.journal = data.journal if data is not None else Journal()
        for _, dynamic in self.journal.facts("broker_config"):
            self.config.alter(dynamic)
        self.leaders = Leaders()
        self.producer_ids = ProducerIds(self.journal)
        self.topics = Topics(self.config, data)
        self.groups = Groups(self.config, self.journal)
        self.transactions = Transactions(
            self.config, self.topics, self.groups, self.producer_ids, self.journal
        )
        self._forget_expired_producers()

    @property
    def port(self) -> int:
        """Where it listens; known once it was started, and the same after a restart."""
        return self._server.port

    @property
    def bootstrap(self) -> str:
        """The address for ``bootstrap.servers``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def start(self) -> None:
        """
        Begin to listen; after a stop, with everything as it was.

        A restart is one of Kafka's, seen from outside: partitions get a new
        leader epoch, and producers whose state is too old are forgotten.

        Raises:
            OSError: The port is taken.
            ConfigError: Another broker has had the directory since the stop.

        """
        self.open()
        self.listen()

    def stop(self) -> None:
        """Close every connection and the port; keep logs, groups and transactions, here and on the disk."""
        self.topics.closing = True
        self.hang_up()
        self.close()

    def open(self) -> None:
        """
        Have the logs change and time pass; a cluster does it once for all of its nodes.

        Raises:
            ConfigError: The directory is another broker's since, or failed.

        """
        if self.failure is not None:
            raise ConfigError(f"{self.failure}; a new broker has to read it")
        if self._data is not None:
            self._data.take_again()
            self._data.set_clean(False)
        if self._was_started:
            self.topics.begin_leader_epoch()
            self._forget_expired_producers()
        self._was_started = True
        self.topics.closing = False
        self.groups.open()
        self._housekeeper.start()

    def listen(self) -> None:
        """
        Serve clients, as one of the cluster's nodes.

        Raises:
            OSError: The port is taken.

        """
        self.fetch_sessions.forget_all()
        self.purgatory.open()
        self._server.start()
        self.leaders.joined(Node(self.node_id, self.host, self.port))

    def hang_up(self) -> None:
        """Serve nobody any more."""
        self.leaders.left(self.node_id)
        self.purgatory.close()
        self.groups.wake()
        self._server.stop()

    def close(self) -> None:
        """Let time stand still, and have everything on the disk that is to be there."""
        self._housekeeper.stop()
        self.groups.close()
        if self._data is not None:
            self._close_data(self._data)
            self._data.release()

    def _close_data(self, data: DataDirectory) -> None:
        if self.failure is not None:
            # A flush that succeeds now says nothing about what was lost.
            return
        try:
            self.topics.close()
            data.set_clean(True)
        except (OSError, ApiError) as error:
            reason = error if isinstance(error, ApiError) else self.topics.failure.refused("the end", error)
            _log.warning(
                "%s was not closed in good order (%s): the next start checks all batches",
                data.path,
                reason.message,
            )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def failure(self) -> str | None:
        """Why its log directory is off line, as a sentence; None while it is not."""
        return self.topics.failure.reason

    def when_halted(self, call: Callable[[], None]) -> None:
        """Have something called, in another thread, once it stopped by itself: see :attr:`failure`."""
        self._halted.append(call)

    def _begin_to_halt(self) -> None:
        threading.Thread(target=self._halt, name="shoal-broker-halt", daemon=True).start()

    def _halt(self) -> None:
        with suppress(NobodyWaits):
            self.purgatory.pause(_LAST_ANSWERS_S)
        self.hang_up()
        for call in self._halted:
            call()

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> Topic:
        """
        Create a topic without a client.

        Raises:
            ApiError: It exists, or its name, its number of partitions or a setting is wrong.

        """
        return self.topics.create(name, partitions, config or {})

    def log(self, topic: str, partition: int = 0) -> Log:
        """
        Return a partition's log, to look into or to store batches in as they are.

        Raises:
            ApiError: There is none.

        """
        return self.topics.log(topic, partition)

    def led_log(self, topic: str, partition: int) -> Log:
        """
        Return the log of a partition that this node leads.

        Raises:
            ApiError: With UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER or KAFKA_STORAGE_ERROR.

        """
        log = self.topics.log(topic, partition)
        self.check_leads(topic, partition)
        return log

    def check_leads(self, topic: str, partition: int) -> None:
        """
        Say whether this node leads a partition, and has it.

        Raises:
            ApiError: With NOT_LEADER_OR_FOLLOWER or KAFKA_STORAGE_ERROR.

        """
        self.topics.failure.check()
        self.leaders.check(self.node_id, topic, partition)

    def gave_up(self, call: Call) -> bool:
        """Whether nobody waits for a request's answer any more: the broker stopped, or its client hung up."""
        return self.purgatory.is_closed or call.has_hung_up()

    def _seconds(self, setting: str) -> float:
        return int(self.config[setting]) / 1000

    def _delete_old_segments(self) -> None:
        for topic in self.topics:
            for log in topic.logs:
                try:
                    log.delete_old_segments(now_ms())
                except OSError as error:
                    _log.warning("%s", self.topics.failure.refused(log.name, error).message)

    def _forget_expired_producers(self) -> None:
        expiration_ms = int(self.config["producer.id.expiration.ms"])
        for topic in self.topics:
            for log in topic.logs:
                log.forget_expired_producers(now_ms(), expiration_ms)


def _check_address(host: str, allow_any_address: bool) -> None:
    addresses = addresses_of(host)
    if not allow_any_address and not all(address.is_loopback for address in addresses):
        raise ConfigError(f"the embedded broker listens on loopback addresses only, not on {host!r}")
    if any(address.is_unspecified for address in addresses):
        raise ConfigError(f"the broker would advertise {host!r}, which clients cannot connect to")


def _random_cluster_id() -> str:
    """22 characters of URL-safe base64, as Kafka makes them."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
