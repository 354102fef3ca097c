"""The first position in a partition: from a seek, a committed offset, or ``auto.offset.reset``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from ...errors import NoPosition, ShoalError
from ...topic_partition import TopicPartition
from ..cluster import Cluster, is_transient
from ..committed_offsets import Committed, fetch_offsets
from ..offsets import list_offsets
from .partitions import ConsumedPartition
from .settings import ConsumerSettings

__all__ = ["StartPositions"]


class StartPositions:
    """Finds the positions of partitions that have none."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings) -> None:
        self._cluster = cluster
        self._settings = settings

    def find(self, states: Iterable[ConsumedPartition], *, patient: bool = False) -> None:
        """
        Find missing positions.

        Args:
            states: The partitions; those with a position, or with a later retry, are skipped.
            patient: Whether the caller retries: then every missing position is looked up, and errors raise.

        Raises:
            NoPosition: Nothing is committed, and ``auto.offset.reset=none``.
            ShoalError: A request failed. A transient one is raised only if ``patient``.

        """
        now = time.monotonic()
        lacking = [state for state in states if state.position is None and (patient or state.retry_at <= now)]
        if not lacking:
            return
        try:
            self._take_committed([state for state in lacking if state.reset_to is None])
            self._reset([state for state in lacking if state.position is None])
        except ShoalError as error:
            if patient or not is_transient(error):
                raise
            for state in lacking:
                state.put_off()

    def _take_committed(self, states: Sequence[ConsumedPartition]) -> None:
        if not states:
            return
        committed: Mapping[TopicPartition, Committed] = {}
        if self._settings.membership is not None:
            partitions = [state.partition for state in states]
            committed = fetch_offsets(self._cluster, self._settings.membership.group, partitions)
        for state in states:
            found = committed.get(state.partition)
            if found is not None:
                state.position = found.offset
                continue
            state.reset_to = self._settings.reset_to
            if state.reset_to is None:
                raise NoPosition(state.partition.topic, state.partition.partition)

    def _reset(self, states: Sequence[ConsumedPartition]) -> None:
        if not states:
            return
        self._cluster.refresh({state.partition.topic for state in states})
        asked = {state.partition: state.reset_to for state in states if state.reset_to is not None}
        answers = list_offsets(self._cluster, asked, self._settings.client.isolation_level)
        failures: list[ShoalError] = []
        for state in states:
            answer = answers[state.partition]
            if isinstance(answer, ShoalError):
                failures.append(answer)
                state.put_off()
            else:
                state.position, state.reset_to = answer, None
        for failure in failures:
            if not is_transient(failure) or len(failures) == len(states):
                raise failure
