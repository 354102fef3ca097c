"""The first and last offsets of logs, asked for until the leaders answer."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from ..errors import ShoalError
from ..topic_partition import TopicPartition
from .cluster import Cluster, is_transient, patiently
from .config import IsolationLevel
from .offsets import EARLIEST, LATEST, list_offsets

__all__ = ["LogOffsets", "ask_logs", "ask_offsets"]


class LogOffsets(NamedTuple):
    """
    The offsets of a log.

    Attributes:
        start: The first one.
        stable: The last stable one, asked for after the end: if it is smaller, a transaction is open.
        end: The high watermark.

    """

    start: int
    stable: int
    end: int


def ask_logs(
    cluster: Cluster, partitions: Collection[TopicPartition], patience_s: float
) -> dict[TopicPartition, LogOffsets | ShoalError]:
    """
    Ask for the offsets of logs.

    Args:
        cluster: The cluster, with metadata of the partitions.
        partitions: The partitions.
        patience_s: How long to retry transient errors.

    Returns:
        For each partition its offsets, or the error that prevents them.

    """
    ends, stable, starts = (
        ask_offsets(cluster, partitions, timestamp, patience_s, level)
        for timestamp, level in (
            (LATEST, IsolationLevel.READ_UNCOMMITTED),
            (LATEST, IsolationLevel.READ_COMMITTED),
            (EARLIEST, IsolationLevel.READ_UNCOMMITTED),
        )
    )
    return {each: _log(starts[each], stable[each], ends[each]) for each in partitions}


def _log(start: int | ShoalError, stable: int | ShoalError, end: int | ShoalError) -> LogOffsets | ShoalError:
    if isinstance(start, ShoalError):
        return start
    if isinstance(stable, ShoalError):
        return stable
    if isinstance(end, ShoalError):
        return end
    # DeleteRecords may move the log start past the last stable offset.
    return LogOffsets(start, max(start, stable), max(start, end))


def ask_offsets(
    cluster: Cluster,
    partitions: Collection[TopicPartition],
    timestamp: int,
    patience_s: float,
    level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, int | ShoalError]:
    """Ask as :func:`~shoal.client.offsets.list_offsets` does, until no answer is a transient error."""
    answers: dict[TopicPartition, int | ShoalError] = {}
    unanswered = list(partitions)

    def try_again() -> None:
        nonlocal unanswered
        if answers:
            cluster.refresh({partition.topic for partition in unanswered})
        answers.update(list_offsets(cluster, dict.fromkeys(unanswered, timestamp), level))
        errors = {each: answer for each, answer in answers.items() if isinstance(answer, ShoalError)}
        unanswered = [each for each, error in errors.items() if is_transient(error)]
        if unanswered:
            raise errors[unanswered[0]]

    with suppress(ShoalError):
        patiently(try_again, patience_s=patience_s)
    return answers
