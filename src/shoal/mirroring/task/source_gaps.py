"""
Partitions of which the source sends nothing, though their logs go on: a gap at the log's end, or a slow read.

Only a cleaner leaves such a gap. A broker that reads from remote storage may send empty answers for minutes,
and the next read brings records. So a gap is skipped only if :func:`~shoal.client.scan.look_for_gap` confirms
it, and its offsets are counted. Otherwise the partition waits. A range with an end waits for
``PATIENCE`` request timeouts, and then has an incident.

A look takes as long as the source lets a fetch wait, up to a request timeout. A look for a partition that is
being copied has a thread and connections of its own, so it delays no other partition. An alignment that reads
up to a gap looks in the worker's own thread (:func:`~shoal.client.scan.read_decided`), and the worker's other
partitions wait for it. Only an alignment that searches the source for records of the copy reads so far.
"""

from __future__ import annotations

import threading
import time
import uuid
from datetime import UTC, datetime

from ...client.cluster import Cluster
from ...client.config import IsolationLevel
from ...client.scan import ANSWERS_OF_A_GAP, GapLook, NoRecords, look_for_gap
from ...errors import ShoalError
from ...topic_partition import TopicPartition
from ..model.copy_options import CopySettings
from ..model.incidents import IncidentKind
from .partition import PartitionCopy

__all__ = ["SourceGaps"]

#: The number of request timeouts after which a range with an end waits no longer: five minutes by default.
PATIENCE = 10

#: The most that counts of the time between two empty answers. A partition may have been held meanwhile. The
#: pauses are at most 10 s, but each answer is about one partition, and hundreds may be silent.
_MOST_BETWEEN_S = 60.0


class SourceGaps:
    """The partitions of one worker without records; for its thread alone."""

    def __init__(self, source: Cluster, settings: CopySettings) -> None:
        """
        Begin without any.

        Args:
            source: The source cluster, for names in messages and for metadata.
            settings: The mirror's settings.

        """
        self._source = source
        self._settings = settings
        self._silences: dict[TopicPartition, _Silence] = {}

    def close(self) -> None:
        """End all looks."""
        for silence in self._silences.values():
            silence.close()
        self._silences.clear()

    def take_empty_answer(self, copy: PartitionCopy, end: int) -> None:
        """
        React to an answer without records for the first partition of a full request.

        Args:
            copy: The partition; its fetch offset lies before the end of its range.
            end: The end of its log in the answer; not before the end of its range.

        """
        offset = copy.intake.fetch_offset
        answers = copy.intake.count_empty_answer()
        silence = self._silence_of(copy, end, is_first=answers == 1)
        if answers < ANSWERS_OF_A_GAP:
            copy.wait(f"{self._source} to send offset {offset}, or to return another empty response")
            return
        look = silence.look(self._source, self._settings)
        wanted = offset + 1 if copy.range.is_open else copy.range.end_offset
        if look is not None and look.end is not None and look.end >= wanted:
            copy.skip_unproved_gap(min(look.end, copy.end_offset))
            self._silences.pop(copy.source).close()
        elif copy.range.is_open or silence.age_s < self._patience_s:
            copy.wait(f"{self._source} to send offset {offset}: {silence.description}")
        else:
            self._meet(copy, silence)

    def take_failed_read(self, copy: PartitionCopy, error: NoRecords) -> None:
        """React to an alignment that found no records; nothing shows where a partition would continue."""
        if copy.range.is_open:
            copy.wait(str(error))
        else:
            copy.suspect(copy.next_offset, str(error), patience_s=self._patience_s)

    @property
    def _patience_s(self) -> float:
        return PATIENCE * self._source.config.request_timeout_s

    def _silence_of(self, copy: PartitionCopy, end: int, *, is_first: bool) -> _Silence:
        place = copy.intake.fetch_offset, copy.source_topic_id
        silence = self._silences.get(copy.source)
        if silence is not None and not is_first and silence.goes_on(place):
            return silence
        if silence is not None:
            silence.close()
        self._silences[copy.source] = silence = _Silence(copy.source, place, end)
        return silence

    def _meet(self, copy: PartitionCopy, silence: _Silence) -> None:
        """Meet the incident: stop, or skip everything up to the range's end."""
        kind = IncidentKind.SOURCE_GAP
        offset, end = copy.intake.fetch_offset, copy.range.end_offset
        reason = f"{self._source} does not send offset {offset}: {silence.description}"
        continuing = self._settings.surface.continuing(kind)
        if copy.goes_on_after(kind, reason, end - offset, f"{continuing} skips the offsets before {end}"):
            copy.skip_unproved_gap(end)
        self._silences.pop(copy.source).close()


class _Silence:
    """
    The empty answers in a row for one offset.

    Attributes:
        description: When they began, and what is known of their reason.
        age_s: How long they have lasted.

    """

    def __init__(self, partition: TopicPartition, place: tuple[int, uuid.UUID | None], end: int) -> None:
        self._partition = partition
        self._place = place
        self._end = end
        self.age_s = 0.0
        self._last_at = time.monotonic()
        self._since = datetime.now(UTC)
        self._why = ""
        self._look: _Look | None = None

    def goes_on(self, place: tuple[int, uuid.UUID | None]) -> bool:
        """Return whether an empty answer for an offset of a topic belongs to this silence."""
        now = time.monotonic()
        self.age_s += min(now - self._last_at, _MOST_BETWEEN_S)
        self._last_at = now
        return place == self._place

    @property
    def description(self) -> str:
        since = f"{self._since:%Y-%m-%d %H:%M:%S} UTC"
        reason = f"since {since} its answers have no records, though its log reaches to offset {self._end}"
        return f"{reason} ({self._why})" if self._why else reason

    def look(self, source: Cluster, settings: CopySettings) -> GapLook | None:
        """Return the result of a look, once; None while one is under way, which begins here."""
        if self._look is None:
            level = settings.source.isolation_level
            self._look = _Look(Cluster(source.config, source.known), self._partition, self._place[0], level)
        result = self._look.result
        if result is not None:
            self._why = result.why
            self._look = None
        return result

    def close(self) -> None:
        if self._look is not None:
            self._look.close()
            self._look = None


class _Look:
    """
    A look in a thread.

    Attributes:
        result: The result; None as long as the look lasts.

    """

    def __init__(
        self, source: Cluster, partition: TopicPartition, offset: int, isolation_level: IsolationLevel
    ) -> None:
        self.result: GapLook | None = None
        self._source = source
        self._asked = partition, offset, isolation_level
        threading.Thread(target=self._run, name="shoal-gap", daemon=True).start()

    def _run(self) -> None:
        try:
            with self._source:
                self.result = look_for_gap(self._source, *self._asked)
        except ShoalError as error:
            self.result = GapLook(None, str(error))

    def close(self) -> None:
        """Let the thread end soon: it waits for nothing any more."""
        for connection in self._source.open:
            connection.abort()
        self._source.abort_connecting()
