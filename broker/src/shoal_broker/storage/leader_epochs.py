"""The leader epochs of a partition with their start offsets: Kafka's ``LeaderEpochFileCache``."""

from __future__ import annotations

from shoal.error_codes import ErrorCode

from ..api_error import ApiError

__all__ = ["LeaderEpochs"]


class LeaderEpochs:
    """
    All leader epochs of a log. The log's lock guards it.

    Attributes:
        starts: ``(leader epoch, first offset)``, ascending.

    """

    def __init__(self) -> None:
        self.starts = [(0, 0)]
        self._current = 0

    @property
    def current(self) -> int:
        """The epoch that appended batches get."""
        return self._current

    def begin(self, leader_epoch: int, log_end_offset: int) -> None:
        """Begin an epoch at the log's end; an epoch without batches leaves no trace."""
        self._current = leader_epoch
        written = [entry for entry in self.starts if entry[1] < log_end_offset]
        self.starts = [*written, (leader_epoch, log_end_offset)]

    def check(self, expected: int) -> None:
        """
        Check the client's leader epoch against the current one; -1 means that it sent none (KIP-320).

        Raises:
            ApiError: With FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.

        """
        if expected < 0 or expected == self._current:
            return
        code = ErrorCode.FENCED_LEADER_EPOCH if expected < self._current else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise ApiError(code, f"the leader epoch is {self._current}, not {expected}")

    def at(self, offset: int) -> int:
        """Return the leader epoch of an offset; -1 if it is older than all epochs."""
        return max((epoch for epoch, start in self.starts if start <= offset), default=-1)

    def end_of(self, leader_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """
        Return the largest epoch up to this one that the log has, and the offset after its last record.

        The current epoch ends at the log's end; an unknown one gives (-1, -1).

        """
        if leader_epoch == self._current:
            return leader_epoch, log_end_offset
        later = [start for epoch, start in self.starts if epoch > leader_epoch]
        earlier = [epoch for epoch, _ in self.starts if epoch <= leader_epoch]
        if leader_epoch < 0 or not later:
            return -1, -1
        return (earlier[-1] if earlier else leader_epoch), later[0]
