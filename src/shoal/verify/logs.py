"""The first and last offsets of logs, asked for until the leaders answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from ..client.cluster import Cluster, is_transient, patiently
from ..client.config import IsolationLevel
from ..client.offsets import EARLIEST, LATEST, list_offsets, log_end_offsets
from ..errors import ShoalError
from ..mirroring.model.position import MirrorPosition
from ..topic_partition import TopicPartition
from .errors import NotComparable
from .findings import OffsetRange

__all__ = ["ask_high_watermarks", "ask_logs", "check_end"]


def ask_high_watermarks(
    cluster: Cluster, partitions: list[TopicPartition], patience_s: float
) -> dict[TopicPartition, int | ShoalError]:
    """Ask for the high watermarks of partitions, as :func:`ask_logs` does."""
    return _ask_patiently(
        cluster,
        partitions,
        lambda asked: list_offsets(cluster, dict.fromkeys(asked, LATEST)),
        patience_s,
    )


def ask_logs(
    cluster: Cluster, partitions: list[TopicPartition], isolation_level: IsolationLevel, patience_s: float
) -> dict[TopicPartition, OffsetRange | ShoalError]:
    """
    Ask for the offsets at which logs begin and end.

    Args:
        cluster: The cluster, with metadata of the partitions.
        isolation_level: Up to the last stable offset, or the high watermark.
        patience_s: How long to retry transient errors.

    Returns:
        For each partition its offsets, or the error that prevents them.

    """

    def ask(timestamp: int) -> dict[TopicPartition, int | ShoalError]:
        return _ask_patiently(
            cluster,
            partitions,
            lambda asked: list_offsets(cluster, dict.fromkeys(asked, timestamp), isolation_level),
            patience_s,
        )

    ends, starts = ask(LATEST), ask(EARLIEST)
    logs: dict[TopicPartition, OffsetRange | ShoalError] = {}
    for partition in partitions:
        start, end = starts[partition], ends[partition]
        if isinstance(start, ShoalError) or isinstance(end, ShoalError):
            logs[partition] = start if isinstance(start, ShoalError) else end  # type: ignore[assignment]
        else:
            # DeleteRecords may move the log start past the last stable offset.
            logs[partition] = OffsetRange(start, max(start, end))
    return logs


def _ask_patiently(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: Callable[[list[TopicPartition]], dict[TopicPartition, int | ShoalError]],
    patience_s: float,
) -> dict[TopicPartition, int | ShoalError]:
    """Ask leaders until no answer is an error that time can heal, or patience ends."""
    answers: dict[TopicPartition, int | ShoalError] = {}
    unanswered = list(partitions)

    def try_again() -> None:
        nonlocal unanswered
        if answers:
            cluster.refresh({partition.topic for partition in unanswered})
        answers.update(ask(unanswered))
        errors = {each: answer for each, answer in answers.items() if isinstance(answer, ShoalError)}
        unanswered = [each for each, error in errors.items() if is_transient(error)]
        if unanswered:
            raise errors[unanswered[0]]

    with suppress(ShoalError):
        patiently(try_again, patience_s=patience_s)
    return answers


def check_end(
    destination: Cluster, partition: TopicPartition, high_watermark: int, position: MirrorPosition | None
) -> None:
    """
    Make sure that all records up to the committed position can be read, unless they are lost.

    Raises:
        NotComparable: The record is there, but not yet on all in-sync replicas.

    """
    if position is None or high_watermark >= position.destination_offset:
        return
    end = log_end_offsets(destination, [partition])[partition]
    if isinstance(end, ShoalError):
        raise end
    if end >= position.destination_offset:
        raise NotComparable(
            f"the high watermark of {partition} on {destination} is {high_watermark}, behind the log end "
            f"{end}: its in-sync replicas are behind. Try again when they have caught up"
        )
