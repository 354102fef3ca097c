"""
The transaction coordinator: the producer of each transactional id, and the partitions of its transaction.

Unlike Kafka's ``TransactionCoordinator``, it writes the markers itself and at once. So clients never see the
states PrepareCommit and PrepareAbort, nor CONCURRENT_TRANSACTIONS. One lock guards all
ids; the locks of groups and logs are taken inside it, never the other way round.

An id expires if it is unused for ``transactional.id.expiration.ms``, as in Kafka.
``shoal.transactional.ids.max.bytes`` bounds the memory of all ids: beyond it, the least recently used ones
expire early.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any, TypeVar

from shoal.error_codes import ErrorCode
from shoal.records.aborted import Marker

from ..api_error import ApiError
from ..clock import now_ms
from ..storage.journal import Journal
from ..topics import Topics
from .groups import Groups
from .producer_ids import ProducerIds

__all__ = ["Transaction", "TransactionState", "Transactions"]

Result = TypeVar("Result")

#: The coordinator epoch of markers: there is one coordinator, and it never moves.
_COORDINATOR_EPOCH = 0

#: An int16; the last one is kept for fencing, as in Kafka.
_LAST_EPOCH = 2**15 - 2


#: The memory of an id, a partition and a group in CPython, beside the names, as measured.
_TRANSACTION_BYTES = 600
_PARTITION_BYTES = 200
_GROUP_BYTES = 100


class TransactionState(enum.Enum):
    """A transaction's state; the value is its name in DescribeTransactions."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


#: In these an id may expire (``TransactionStateManager``).
_AT_REST = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


@dataclass(slots=True)
class Transaction:
    """
    A transactional id, and its open transaction, if there is one.

    Attributes:
        timeout_s: The longest time that a transaction may be open.
        epoch: The epoch that may write; older ones are fenced.
        previous_epoch: The epoch before, which identifies a repeated InitProducerId.
        partitions: The partitions of the open transaction.
        groups: The groups whose offsets are part of it.
        expires_at: The time at which it is aborted if it is still open, on the monotonic clock.
        started_at_ms: The start of the open transaction, or of the last one; -1 before the first.
        updated_at_ms: The time of the last change.
        counted_bytes: The memory that it took at the last count.

    """

    transactional_id: str
    producer_id: int
    timeout_s: float
    epoch: int = 0
    previous_epoch: int = -1
    state: TransactionState = TransactionState.EMPTY
    partitions: set[tuple[str, int]] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    expires_at: float = 0.0
    started_at_ms: int = -1
    updated_at_ms: int = 0
    counted_bytes: int = 0

    @property
    def kept_bytes(self) -> int:
        """The memory that it takes."""
        return (
            _TRANSACTION_BYTES + getsizeof(self.transactional_id) + _named_bytes(self.partitions, self.groups)
        )


class Transactions:
    """All transactional ids. Safe to use from several threads."""

    def __init__(
        self,
        broker_config: Mapping[str, str],
        topics: Topics,
        groups: Groups,
        producer_ids: ProducerIds,
        journal: Journal | None = None,
    ) -> None:
        """
        Restore the ids of a journal.

        A transaction that was about to end is ended. An open one may continue, and its timeout begins again.

        """
        self._config = broker_config
        self._topics = topics
        self._groups = groups
        self._producer_ids = producer_ids
        self._journal = journal or Journal()
        self._lock = threading.RLock()
        #: The least recently used one first.
        self._by_id: dict[str, Transaction] = {}
        self._kept_bytes = 0
        for (transactional_id,), fact in self._journal.facts("transaction"):
            self._count(transaction := _from_fact(transactional_id, fact))
            self._finish(transaction)

    @property
    def kept_bytes(self) -> int:
        """The memory of all ids."""
        return self._kept_bytes

    def _count(self, transaction: Transaction) -> None:
        """Count an id's memory, and make it the most recently used one."""
        kept_bytes = transaction.kept_bytes
        self._kept_bytes += kept_bytes - transaction.counted_bytes
        transaction.counted_bytes = kept_bytes
        self._by_id.pop(transaction.transactional_id, None)
        self._by_id[transaction.transactional_id] = transaction

    def _make_room(self, wanting: Transaction, more_bytes: int) -> None:
        """
        Expire unused ids until there is room.

        Raises:
            ApiError: With COORDINATOR_NOT_AVAILABLE, after which clients retry, if all other ids have an open
                transaction. It ends at its timeout at the latest.

        """
        most_bytes = int(self._config["shoal.transactional.ids.max.bytes"])
        missing_bytes = self._kept_bytes + more_bytes - most_bytes
        if most_bytes < 0 or missing_bytes <= 0:
            return
        expiring: list[Transaction] = []
        for transaction in self._by_id.values():
            if missing_bytes <= 0:
                break
            if transaction is not wanting and transaction.state in _AT_REST:
                expiring.append(transaction)
                missing_bytes -= transaction.counted_bytes
        if missing_bytes > 0:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"open transactions take {self._kept_bytes} bytes, and shoal.transactional.ids.max.bytes is "
                f"{most_bytes}",
            )
        for transaction in expiring:
            self._forget(transaction)

    def _forget(self, transaction: Transaction) -> None:
        """Expire an id: its producer gets INVALID_PRODUCER_ID_MAPPING, as in Kafka."""
        self._journal.put("transaction", transaction.transactional_id, value=None)
        del self._by_id[transaction.transactional_id]
        self._kept_bytes -= transaction.counted_bytes

    def forget_unused(self) -> None:
        """Expire ids that are unused for ``transactional.id.expiration.ms``; to be called regularly."""
        oldest_ms = now_ms() - int(self._config["transactional.id.expiration.ms"])
        with self._lock:
            for transaction in [*self._by_id.values()]:
                if transaction.state in _AT_REST and transaction.updated_at_ms <= oldest_ms:
                    self._forget(transaction)

    def _keep(self, transaction: Transaction) -> None:
        transaction.updated_at_ms = now_ms()
        self._count(transaction)
        fact = {
            "producer_id": transaction.producer_id,
            "epoch": transaction.epoch,
            "previous_epoch": transaction.previous_epoch,
            "timeout_s": transaction.timeout_s,
            "state": transaction.state.value,
            "partitions": sorted(transaction.partitions),
            "groups": sorted(transaction.groups),
            "started_at_ms": transaction.started_at_ms,
            "updated_at_ms": transaction.updated_at_ms,
        }
        self._journal.put("transaction", transaction.transactional_id, value=fact)

    def init(self, transactional_id: str, timeout_ms: int, producer_id: int, epoch: int) -> tuple[int, int]:
        """
        Give a transactional id to a producer: fence the one before, and abort its open transaction.

        Args:
            timeout_ms: The longest time that a transaction may be open.
            producer_id: The producer's own id if it asks for its next epoch (KIP-360); otherwise -1.
            epoch: The producer's epoch if it asks for its next one; otherwise -1.

        Returns:
            The producer id and the epoch to write with.

        Raises:
            ApiError: With INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED or
                COORDINATOR_NOT_AVAILABLE.

        """
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a transactional id may not be empty")
        if not 0 < timeout_ms <= int(self._config["transaction.max.timeout.ms"]):
            raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"a timeout of {timeout_ms} ms")
        with self._lock:
            transaction = self._by_id.get(transactional_id)
            if transaction is None:
                transaction = Transaction(transactional_id, -1, timeout_ms / 1000)
                self._make_room(transaction, transaction.kept_bytes)
                transaction.producer_id = self._producer_ids.new()
                self._keep(transaction)
                return transaction.producer_id, transaction.epoch
            transaction.timeout_s = timeout_ms / 1000
            if producer_id >= 0 and self._is_repeated(transaction, producer_id, epoch):
                return transaction.producer_id, transaction.epoch
            self._finish(transaction)
            if transaction.state is TransactionState.ONGOING:
                self._fence_and_abort(transaction)
            self._next_epoch(transaction)
            transaction.state = TransactionState.EMPTY
            self._keep(transaction)
            return transaction.producer_id, transaction.epoch

    def _is_repeated(self, transaction: Transaction, producer_id: int, epoch: int) -> bool:
        if producer_id != transaction.producer_id or epoch not in (
            transaction.epoch,
            transaction.previous_epoch,
        ):
            raise _fenced(transaction, producer_id, epoch)
        return epoch == transaction.previous_epoch

    def _next_epoch(self, transaction: Transaction) -> None:
        if transaction.epoch >= _LAST_EPOCH:
            transaction.producer_id = self._producer_ids.new()
            transaction.previous_epoch, transaction.epoch = -1, 0
        else:
            transaction.previous_epoch = transaction.epoch
            transaction.epoch += 1

    @contextmanager
    def _held(self, transactional_id: str, producer_id: int, epoch: int) -> Iterator[Transaction]:
        """Hold the lock, if the producer has the transactional id."""
        with self._lock:
            transaction = self._by_id.get(transactional_id)
            if transaction is None or transaction.producer_id != producer_id:
                raise ApiError(
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                    f"producer {producer_id} does not have the transactional id {transactional_id!r}",
                )
            if transaction.epoch != epoch:
                raise _fenced(transaction, producer_id, epoch)
            yield transaction

    def add_partitions(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Iterable[tuple[str, int]]
    ) -> None:
        """
        Open a transaction, unless one is open, and make partitions part of it.

        Raises:
            ApiError: With INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED or COORDINATOR_NOT_AVAILABLE.

        """
        with self._held(transactional_id, producer_id, epoch) as transaction:
            added = set(partitions) - transaction.partitions
            self._make_room(transaction, _named_bytes(added))
            self._begin(transaction)
            transaction.partitions.update(added)
            self._keep(transaction)

    def add_offsets(self, transactional_id: str, producer_id: int, epoch: int, group_id: str) -> None:
        """
        Make a group's offsets part of the transaction.

        Raises:
            ApiError: With INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED or COORDINATOR_NOT_AVAILABLE.

        """
        with self._held(transactional_id, producer_id, epoch) as transaction:
            if group_id not in transaction.groups:
                self._make_room(transaction, _named_bytes((), (group_id,)))
            self._begin(transaction)
            transaction.groups.add(group_id)
            self._keep(transaction)

    def _begin(self, transaction: Transaction) -> None:
        self._finish(transaction)
        if transaction.state is not TransactionState.ONGOING:
            transaction.state = TransactionState.ONGOING
            transaction.expires_at = time.monotonic() + transaction.timeout_s
            transaction.started_at_ms = now_ms()

    def check_partition(
        self, transactional_id: str, producer_id: int, epoch: int, partition: tuple[str, int]
    ) -> None:
        """
        Check that a partition is part of the open transaction (KIP-890).

        Raises:
            ApiError: With INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, or TRANSACTION_ABORTABLE
                if the partition was not added.

        """
        with self._held(transactional_id, producer_id, epoch) as transaction:
            if transaction.state is not TransactionState.ONGOING or partition not in transaction.partitions:
                raise ApiError(ErrorCode.TRANSACTION_ABORTABLE, f"{partition} is not part of the transaction")

    def check_group(self, transactional_id: str, producer_id: int, epoch: int, group_id: str) -> None:
        """
        Say whether a group's offsets may be committed in the open transaction.

        Raises:
            ApiError: With INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, or
                INVALID_TXN_STATE if the group was not added.

        """
        with self._held(transactional_id, producer_id, epoch) as transaction:
            if transaction.state is not TransactionState.ONGOING or group_id not in transaction.groups:
                raise ApiError(
                    ErrorCode.INVALID_TXN_STATE, f"group {group_id!r} is not part of the transaction"
                )

    def end(self, transactional_id: str, producer_id: int, epoch: int, *, committed: bool) -> None:
        """
        Commit or abort the open transaction; to ask the same thing twice is no error.

        Raises:
            ApiError: With INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED or INVALID_TXN_STATE.

        """
        ended = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        with self._held(transactional_id, producer_id, epoch) as transaction:
            self._finish(transaction)
            if transaction.state is TransactionState.ONGOING:
                self._end(transaction, Marker.COMMIT if committed else Marker.ABORT)
            elif transaction.state is not ended:
                raise ApiError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"the transaction of {transactional_id!r} is {transaction.state.value}",
                )

    def _end(self, transaction: Transaction, marker: Marker) -> None:
        committed = marker is Marker.COMMIT
        # The decision goes to the journal first: if the process dies between two markers, the next one writes
        # all of them.
        transaction.state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
        self._keep(transaction)
        for name, partition in sorted(transaction.partitions):
            topic = self._topics.get(name)
            if topic is not None and partition < len(topic.logs):  # it may have been deleted meanwhile
                topic.logs[partition].append_marker(
                    transaction.producer_id, transaction.epoch, marker, _COORDINATOR_EPOCH
                )
        for group_id in transaction.groups:
            self._groups.end_transaction(group_id, transaction.producer_id, committed=committed)
        transaction.partitions.clear()
        transaction.groups.clear()
        transaction.state = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        self._keep(transaction)

    def _finish(self, transaction: Transaction) -> None:
        """Complete a decided transaction that a dead process or a full disk left incomplete."""
        if transaction.state is TransactionState.PREPARE_COMMIT:
            self._end(transaction, Marker.COMMIT)
        elif transaction.state is TransactionState.PREPARE_ABORT:
            self._end(transaction, Marker.ABORT)

    def _fence_and_abort(self, transaction: Transaction) -> None:
        """Abort with a newer epoch, so that the logs refuse the old producer's batches."""
        transaction.epoch += 1
        self._end(transaction, Marker.ABORT)

    def read_all(self, read: Callable[[Transaction], Result | None]) -> list[Result]:
        """Call a function with every id, under the lock; return its results that are not None."""
        with self._lock:
            found = [read(transaction) for transaction in self._by_id.values()]
        return [each for each in found if each is not None]

    def expire(self) -> None:
        """Abort transactions that are open for too long; to be called regularly."""
        with self._lock:
            now = time.monotonic()
            for transaction in [*self._by_id.values()]:
                self._finish(transaction)
                if transaction.state is TransactionState.ONGOING and transaction.expires_at <= now:
                    self._fence_and_abort(transaction)


def _from_fact(transactional_id: str, fact: Any) -> Transaction:
    timeout_s = fact["timeout_s"]
    return Transaction(
        transactional_id,
        fact["producer_id"],
        timeout_s,
        fact["epoch"],
        fact["previous_epoch"],
        TransactionState(fact["state"]),
        {(topic, partition) for topic, partition in fact["partitions"]},
        set(fact["groups"]),
        time.monotonic() + timeout_s,
        fact["started_at_ms"],
        fact.get("updated_at_ms", now_ms()),  # an older journal has none
    )


def _named_bytes(partitions: Iterable[tuple[str, int]], groups: Iterable[str] = ()) -> int:
    """Return the memory of a transaction's partitions and groups."""
    return sum(_PARTITION_BYTES + getsizeof(topic) for topic, _ in partitions) + sum(
        _GROUP_BYTES + getsizeof(group) for group in groups
    )


def _fenced(transaction: Transaction, producer_id: int, epoch: int) -> ApiError:
    return ApiError(
        ErrorCode.PRODUCER_FENCED,
        f"{transaction.transactional_id!r} belongs to producer {transaction.producer_id} with epoch "
        f"{transaction.epoch}, not {producer_id} with {epoch}",
    )
