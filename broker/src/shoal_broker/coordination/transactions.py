"""
The transaction coordinator: the producer of each transactional id, and the partitions of its transaction.

Unlike Kafka's ``TransactionCoordinator``, it writes the markers itself and at once. So there are no states
PrepareCommit and PrepareAbort, and clients never see CONCURRENT_TRANSACTIONS. One lock guards all
ids; the locks of groups and logs are taken inside it, never the other way round.

Ids do not expire.
"""

from __future__ import annotations

import enum
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from shoal.error_codes import ErrorCode
from shoal.records.aborted import Marker

from ..api_error import ApiError
from ..topics import Topics
from .groups import Groups

__all__ = ["Transaction", "TransactionState", "Transactions"]

#: Kafka's default of ``transaction.max.timeout.ms``.
_LONGEST_TIMEOUT_MS = 900_000

_FIRST_PRODUCER_ID = 1000

#: An int16; the last one is kept for fencing, as in Kafka.
_LAST_EPOCH = 2**15 - 2


class TransactionState(enum.Enum):
    """A transaction's state, by Kafka's name."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


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


class Transactions:
    """All transactional ids, and the source of producer ids. Safe to use from several threads."""

    def __init__(self, topics: Topics, groups: Groups, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._topics = topics
        self._groups = groups
        self._producer_ids = itertools.count(_FIRST_PRODUCER_ID)
        self._lock = threading.RLock()
        self._by_id: dict[str, Transaction] = {}

    def all(self) -> list[Transaction]:
        """Return a copy of each transactional id as it is now."""
        with self._lock:
            return [replace(each, partitions=set(each.partitions)) for each in self._by_id.values()]

    def new_producer_id(self) -> int:
        """Return a producer id that no other producer has."""
        return next(self._producer_ids)

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
            ApiError: With INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT or PRODUCER_FENCED.

        """
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a transactional id may not be empty")
        if not 0 < timeout_ms <= _LONGEST_TIMEOUT_MS:
            raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"a timeout of {timeout_ms} ms")
        with self._lock:
            transaction = self._by_id.get(transactional_id)
            if transaction is None:
                transaction = Transaction(transactional_id, self.new_producer_id(), timeout_ms / 1000)
                self._by_id[transactional_id] = transaction
                return transaction.producer_id, transaction.epoch
            transaction.timeout_s = timeout_ms / 1000
            if producer_id >= 0 and self._is_repeated(transaction, producer_id, epoch):
                return transaction.producer_id, transaction.epoch
            if transaction.state is TransactionState.ONGOING:
                self._fence_and_abort(transaction)
            self._next_epoch(transaction)
            transaction.state = TransactionState.EMPTY
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
            transaction.producer_id = self.new_producer_id()
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
            ApiError: With INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED.

        """
        with self._held(transactional_id, producer_id, epoch) as transaction:
            self._begin(transaction)
            transaction.partitions.update(partitions)

    def add_offsets(self, transactional_id: str, producer_id: int, epoch: int, group_id: str) -> None:
        """
        Make a group's offsets part of the transaction.

        Raises:
            ApiError: With INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED.

        """
        with self._held(transactional_id, producer_id, epoch) as transaction:
            self._begin(transaction)
            transaction.groups.add(group_id)

    def _begin(self, transaction: Transaction) -> None:
        if transaction.state is not TransactionState.ONGOING:
            transaction.state = TransactionState.ONGOING
            transaction.expires_at = self._clock() + transaction.timeout_s

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
            if transaction.state is TransactionState.ONGOING:
                self._end(transaction, Marker.COMMIT if committed else Marker.ABORT)
            elif transaction.state is not ended:
                raise ApiError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"the transaction of {transactional_id!r} is {transaction.state.value}",
                )

    def _end(self, transaction: Transaction, marker: Marker) -> None:
        committed = marker is Marker.COMMIT
        for name, partition in sorted(transaction.partitions):
            topic = self._topics.get(name)
            if topic is not None and partition < len(topic.logs):  # it may have been deleted meanwhile
                topic.logs[partition].append_marker(transaction.producer_id, transaction.epoch, marker)
        for group_id in transaction.groups:
            self._groups.end_transaction(group_id, transaction.producer_id, committed=committed)
        transaction.partitions.clear()
        transaction.groups.clear()
        transaction.state = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT

    def _fence_and_abort(self, transaction: Transaction) -> None:
        """Abort with a newer epoch, so that the logs refuse the old producer's batches."""
        transaction.epoch += 1
        self._end(transaction, Marker.ABORT)

    def expire(self) -> None:
        """Abort transactions that are open for too long; to be called regularly."""
        with self._lock:
            now = self._clock()
            for transaction in [*self._by_id.values()]:
                if transaction.state is TransactionState.ONGOING and transaction.expires_at <= now:
                    self._fence_and_abort(transaction)


def _fenced(transaction: Transaction, producer_id: int, epoch: int) -> ApiError:
    return ApiError(
        ErrorCode.PRODUCER_FENCED,
        f"{transaction.transactional_id!r} belongs to producer {transaction.producer_id} with epoch "
        f"{transaction.epoch}, not {producer_id} with {epoch}",
    )
