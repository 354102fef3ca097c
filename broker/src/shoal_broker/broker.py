"""The embedded broker, for tests and the demo."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Self

from shoal.errors import ConfigError
from shoal.net.listener import addresses_of
from shoal.printable import logger

from .api_error import ApiError
from .apis import APIS
from .config import broker_config
from .coordination.leaders import Node
from .dispatch import answer
from .server import Server
from .state import BrokerState
from .storage.log import Log
from .topics import Topic

__all__ = ["Broker"]

_log = logger("shoal_broker")


#: Kafka's default of ``offsets.retention.check.interval.ms``, in seconds.
_OFFSETS_CHECK_S = 600.0

#: The interval of checks for expired sessions and transactions, in seconds.
_TIMEOUT_CHECK_S = 0.1


class Broker(BrokerState):
    """
    A Kafka cluster of one broker, in threads of this process.

    For demos, tests and development. A broker keeps everything in memory. It has no authentication, so it
    listens on the loopback interface only. Use it as a context manager, or call :meth:`start` and
    :meth:`stop`.

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
        beside: Broker | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Begin without topics; :meth:`start` listens.

        Args:
            host: A loopback address, or a name for one, which the broker also advertises.
            port: 0 for a free one.
            cluster_id: The id of the cluster, by default a random one.
            config: Broker settings that differ from the defaults, as text.
            node_id: The broker's id in the cluster.
            beside: Another node of the same cluster, whose settings and data this one shares
                (see :class:`~shoal_broker.cluster.BrokerCluster`).
            clock: The monotonic time in seconds that ends sessions, rebalances and transactions, for tests
                that must not wait for them. The other node's, with ``beside``.

        Raises:
            ConfigError: A setting is unknown or invalid, or the address is not a loopback address.

        """
        _check_address(host)
        self.host = host
        try:
            settings = beside.config if beside is not None else broker_config(config or {})
        except ApiError as error:
            raise ConfigError(f"broker: {error.message}") from error
        super().__init__(node_id, APIS, settings, cluster_id=cluster_id, beside=beside, clock=clock)
        self.server = Server(host, port, partial(answer, self))
        self._stopping = threading.Event()
        self._housekeepers: list[threading.Thread] = []
        self._was_started = False

    @property
    def port(self) -> int:
        """The port, known after the first start and the same after a restart."""
        return self.server.port

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

        """
        self.open()
        self.listen()

    def stop(self) -> None:
        """Close every connection and the port; logs, groups and transactions stay."""
        self.hang_up()
        self.close()

    def open(self) -> None:
        """Start the housekeeping; a cluster does it once for all of its nodes."""
        if self._was_started:
            self.topics.begin_leader_epoch()
            self.forget_expired_producers()
        self._was_started = True
        self.groups.open()
        self._stopping.clear()
        producers_check_s = int(self.config["producer.id.expiration.check.interval.ms"]) / 1000
        for every_s, chore in (
            (_TIMEOUT_CHECK_S, self.groups.expire),
            (_TIMEOUT_CHECK_S, self.transactions.expire),
            (producers_check_s, self.forget_expired_producers),
            (_OFFSETS_CHECK_S, self.forget_old_offsets),
        ):
            thread = threading.Thread(
                target=self._repeat, args=(every_s, chore), name="shoal-broker-housekeeper", daemon=True
            )
            thread.start()
            self._housekeepers.append(thread)

    def _repeat(self, every_s: float, chore: Callable[[], None]) -> None:
        """Do a chore after each interval; one that fails ends neither itself nor the others."""
        while not self._stopping.wait(every_s):
            try:
                chore()
            except Exception:
                _log.exception("a chore failed")

    def listen(self) -> None:
        """
        Serve clients as one of the cluster's nodes.

        Raises:
            OSError: The port is taken.

        """
        self.fetch_sessions.forget_all()
        self.purgatory.open()
        self.server.start()
        self.leaders.joined(Node(self.node_id, self.host, self.port))

    def hang_up(self) -> None:
        """Close every connection and the port."""
        self.leaders.left(self.node_id)
        self.purgatory.close()
        self.groups.wake()
        self.server.stop()

    def close(self) -> None:
        """Stop the housekeeping."""
        self._stopping.set()
        while self._housekeepers:
            self._housekeepers.pop().join()
        self.groups.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

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


def _check_address(host: str) -> None:
    if not all(address.is_loopback for address in addresses_of(host)):
        raise ConfigError(f"the embedded broker listens on loopback addresses only, not on {host!r}")
