"""The embedded broker, for tests and the demo."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self

from shoal.errors import ConfigError
from shoal.net.listener import addresses_of
from shoal.net.memory_budget import MemoryBudget
from shoal.printable import logger

from .api_error import ApiError
from .apis.table import APIS, APIS_WITH_OLD_VERSIONS
from .clock import now_ms
from .config import BrokerConfig
from .coordination.leaders import Node
from .coordination.purgatory import NobodyWaits
from .serving.connection_quotas import ConnectionQuotas
from .serving.dispatch import answer
from .serving.housekeeping import Chore, Housekeeper
from .serving.server import Server
from .state import BrokerState
from .storage.data_directory import DataDirectory
from .storage.log import Log
from .topics import Topic

__all__ = ["Broker"]

_log = logger("shoal_broker")

_TOO_SLOW = (
    "a request of {size} bytes from {host} was not received while others waited for memory "
    "(queued.max.request.bytes is {most}), so its connection was closed"
)

#: After its log directory failed, a broker answers KAFKA_STORAGE_ERROR for this time before it stops.
#: Kafka halts at once, in the middle of its answers.
_LAST_ANSWERS_S = 1.0

#: The interval of checks for expired sessions and transactions, in seconds.
_TIMEOUT_CHECK_S = 0.1


class Broker(BrokerState):
    """
    A Kafka cluster of one broker, in threads of this process.

    For demos, tests and development. A broker has no authentication, so by default it listens on the
    loopback interface only. Use it as a context manager, or call :meth:`start` and :meth:`stop`.

    Attributes:
        host: The address that it listens on and advertises.

    """

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
        Read the state; :meth:`start` listens.

        Args:
            host: An address of this machine, or a name for one, which the broker also advertises.
            port: 0 for a free one.
            cluster_id: By default the data directory's, or a random one.
            config: Broker settings that differ from the defaults, as text.
            node_id: The broker's id in the cluster.
            data: The directory for logs and state; None keeps everything in memory.
            allow_any_address: Listen also on addresses that other machines can connect to.
            beside: Another node of the same cluster, whose settings and data this one shares
                (see :class:`~shoal_broker.cluster.BrokerCluster`).

        Raises:
            ConfigError: A setting is unknown or invalid, the address is not a loopback address, or
                the directory belongs to another broker or is damaged.

        """
        _check_address(host, allow_any_address)
        self.host = host
        try:
            settings = beside.config if beside is not None else BrokerConfig(config or {})
        except ApiError as error:
            raise ConfigError(f"broker: {error.message}") from error
        old_versions = settings["shoal.old.versions"].lower() == "true"
        apis = APIS_WITH_OLD_VERSIONS if old_versions else APIS
        self._data = DataDirectory(data) if data is not None else None
        try:
            super().__init__(node_id, apis, settings, cluster_id=cluster_id, data=self._data, beside=beside)
        except BaseException as error:
            if self._data is not None:
                self._data.release()
            if isinstance(error, ApiError):
                raise ConfigError(f"broker: {error.message}") from error
            if isinstance(error, OSError) and data is not None:
                raise ConfigError(f"{data}: it cannot be read: {error.strerror}") from error
            raise
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
        self._housekeeper = Housekeeper(
            [
                Chore(_TIMEOUT_CHECK_S, self.groups.expire),
                Chore(_TIMEOUT_CHECK_S, self.transactions.expire),
                Chore(
                    self._seconds("transaction.remove.expired.transaction.cleanup.interval.ms"),
                    self.transactions.forget_unused,
                ),
                Chore(
                    self._seconds("producer.id.expiration.check.interval.ms"), self.forget_expired_producers
                ),
                Chore(self._seconds("log.retention.check.interval.ms"), self._delete_old_segments),
                Chore(self._seconds("offsets.retention.check.interval.ms"), self.groups.forget_old_offsets),
            ]
        )
        self._was_started = False

    @property
    def port(self) -> int:
        """The port, known after the first start and the same after a restart."""
        return self._server.port

    @property
    def bootstrap(self) -> str:
        """The address for ``bootstrap.servers``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def start(self) -> None:
        """
        Listen, after a stop with the same state.

        Clients see a restart like Kafka's: partitions get a new leader epoch, and old producers expire.

        Raises:
            OSError: The port is taken.
            ConfigError: Another broker used the directory since the stop.

        """
        self.open()
        self.listen()

    def stop(self) -> None:
        """Close every connection and the port; logs, groups and transactions stay, in memory and on disk."""
        self.topics.closing = True
        self.hang_up()
        self.close()

    def open(self) -> None:
        """
        Take the directory and start the housekeeping; a cluster does it once for all of its nodes.

        Raises:
            ConfigError: Another broker used the directory since, or it failed.

        """
        if self.failure is not None:
            raise ConfigError(f"{self.failure}. Open the directory with a new broker")
        if self._data is not None:
            self._data.take_again()
            self._data.set_clean(False)
        if self._was_started:
            self.topics.begin_leader_epoch()
            self.forget_expired_producers()
        self._was_started = True
        self.topics.closing = False
        self.groups.open()
        self._housekeeper.start()

    def listen(self) -> None:
        """
        Serve clients as one of the cluster's nodes.

        Raises:
            OSError: The port is taken.

        """
        self.fetch_sessions.forget_all()
        self.purgatory.open()
        self._server.start()
        self.leaders.joined(Node(self.node_id, self.host, self.port))

    def hang_up(self) -> None:
        """Close every connection and the port."""
        self.leaders.left(self.node_id)
        self.purgatory.close()
        self.groups.wake()
        self._server.stop()

    def close(self) -> None:
        """Stop the housekeeping, flush the logs, and release the directory."""
        self._housekeeper.stop()
        self.groups.close()
        if self._data is not None:
            self._close_data(self._data)
            self._data.release()

    def _close_data(self, data: DataDirectory) -> None:
        if self.failure is not None:
            # A flush that succeeds now does not prove that the earlier writes reached the disk.
            return
        try:
            self.topics.close()
            data.set_clean(True)
        except (OSError, ApiError) as error:
            reason = error if isinstance(error, ApiError) else self.topics.failure.error_for("the end", error)
            _log.warning(
                "%s was not closed cleanly (%s): the next start checks all batches",
                data.path,
                reason.message,
            )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def when_halted(self, call: Callable[[], None]) -> None:
        """Call a function, in another thread, after the broker stopped by itself: see :attr:`failure`."""
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
            ApiError: The topic exists, or its name, number of partitions or a setting is invalid.

        """
        return self.topics.create(name, partitions, config or {})

    def log(self, topic: str, partition: int = 0) -> Log:
        """
        Return a partition's log, to read it or to store batches directly.

        Raises:
            ApiError: The partition does not exist.

        """
        return self.topics.log(topic, partition)

    def _seconds(self, setting: str) -> float:
        return int(self.config[setting]) / 1000

    def _delete_old_segments(self) -> None:
        for topic in self.topics:
            for log in topic.logs:
                try:
                    log.delete_old_segments(now_ms())
                except OSError as error:
                    _log.warning("%s", self.topics.failure.error_for(log.name, error).message)


def _check_address(host: str, allow_any_address: bool) -> None:
    addresses = addresses_of(host)
    if not allow_any_address and not all(address.is_loopback for address in addresses):
        raise ConfigError(f"the embedded broker listens on loopback addresses only, not on {host!r}")
    if any(address.is_unspecified for address in addresses):
        raise ConfigError(
            f"the broker would advertise {host!r}, which clients cannot connect to. Name a host"
        )
