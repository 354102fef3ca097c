"""
A pair copies partitions from one source leader to one destination leader, in one thread, turn by turn.

A fetch response has record sets of many partitions. Each partition decides about its batches and stamps them
where they lie in the fetch buffer, and views of the buffer go out: many partitions in a request, several
requests in flight, several requests in one system call. The next fetch is on its way meanwhile, so the source
works while the destination does.

- Before the buffer is used again, everything in it is acknowledged or forgotten: producing returns with
  nothing in flight.
- A partition has one batch in a request, unless the broker accepts several. The pair queries the broker once
  a response has several, and again on each connection (``client/multi_batch.py``).
- A turn examines only partitions in the response: of a thousand, most may be idle.
- A partition that loses track is passed on at the end of the turn, and comes back after its alignment.
- If a connection fails, so has the pair: it passes all partitions on, and ends.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing

from ...client.config import IsolationLevel
from ...client.fetch import Fetcher, FetchFrom
from ...error_codes import ErrorCode, named_code
from ...errors import BeingDownloaded, BrokerError, ProtocolError, ShoalError
from ...protocol.fetch import FetchedPartition, FetchResponse
from ...records import has_several
from ...topic_partition import TopicPartition
from ..model.acls import Acl
from .join_memory import JoinMemory
from .partition import PartitionCopy
from .sender import Sender
from .source_gaps import take_empty_answer
from .throttle import Throttle
from .worker import Surroundings, Worker

__all__ = ["Pair"]


class Pair(Worker):
    """Aligned partitions that share their leaders on both sides."""

    def __init__(self, around: Surroundings, leaders: tuple[int, int], buffer_bytes: int) -> None:
        """
        Prepare a pair without partitions.

        Args:
            around: The pair's connections to its task.
            leaders: The node ids of the leaders at source and destination.
            buffer_bytes: The size of the fetch buffer.

        """
        super().__init__(around)
        self._leaders = leaders
        self._buffer_bytes = buffer_bytes
        self._throttle = Throttle(around.control)
        self._memory = JoinMemory()
        self._by_source: dict[TopicPartition, PartitionCopy] = {}
        #: Partitions whose part of the fetch request may have to change, in this order.
        self._changed: dict[PartitionCopy, None] = {}
        self._looked_at = 0.0

    def _work(self) -> None:
        try:
            with (
                closing(self._open_source()) as self._fetcher,
                closing(self._open_destination()) as self._sender,
            ):
                while not self._has_ended():
                    self._last_response_at = time.monotonic()
                    self._turn()
        except ShoalError as error:
            self._close()
            self._hold_up(self._unfinished(), error)
            if not self._control.stop_requested:
                self._pass(self._without_commit())
                self._commits.settle()
                self._pass(self._unfinished())

    def _open_source(self) -> Fetcher:
        timing = self._timing
        return Fetcher(
            self._source.connect(self._leaders[0]),
            buffer_bytes=self._buffer_bytes,
            isolation_level=self._settings.source.isolation_level,
            max_wait_ms=timing.fetch_max_wait_ms,
            timing=timing,
        )

    def _open_destination(self) -> Sender:
        return Sender(self._destination, self._leaders[1], self._settings, self._control, self._report)

    def _turn(self) -> None:
        """Copy what one fetch response brings; nothing is in flight before and after, but the next fetch."""
        self._control.check_lease()  # an interruption ends the pair, also one that fetches nothing
        if not self._fetcher.is_waiting:
            self._send_fetch()
        if not self._fetcher.is_waiting:
            self._progress(has_fetched=False)
            if self._unfinished():  # the throttle holds them, or they have lost track
                self._pause(self._timing.hold_look_s, self._throttle.wait)
            return
        response = self._fetcher.receive()
        self._memory.begin_turn()
        touched = self._take(response)
        self._produce_slices(touched)
        if not self._control.stop_requested:
            self._send_fetch()
        self._produce(touched)
        self._progress(has_fetched=bool(touched))

    def _progress(self, *, has_fetched: bool) -> None:
        """Commit, report and pass on from time to time; nothing is in flight."""
        now = time.monotonic()
        self._commits.now_and_then(self.copies, now)
        self._reports.has_fetched |= has_fetched
        self._reports.now_and_then(self.copies)
        self._pass_lost(now)

    # Partitions that come and go

    def _admit(self) -> None:
        """Take partitions; no fetch is on its way, so no response has records of their former alignments."""
        admitted = self._take_admitted()
        if not admitted:
            return
        for copy in admitted:
            if copy.seen_interruptions != self._control.seen_interruptions:
                copy.lose_track()
            self._by_source[copy.source] = copy
            self._changed[copy] = None
        self._sender.admit(self.copies)

    def _pass_lost(self, now: float) -> None:
        """Pass on the partitions that have lost track, and leave those that another task is to have."""
        if now - self._looked_at < self._timing.look_interval_s:
            return
        self._looked_at = now
        left = self._take_left()
        self._forget(left)
        self._leave(left)
        lost = self._without_commit()
        self._forget(lost)
        self._pass(lost)

    def _forget(self, copies: Iterable[PartitionCopy]) -> None:
        """Fetch nothing more of partitions."""
        for copy in copies:
            del self._by_source[copy.source]
            self._changed.pop(copy, None)
            self._fetcher.forget(copy.source)

    def _without_commit(self) -> list[PartitionCopy]:
        """Return the partitions that have lost track, without those whose commit is under way."""
        return [
            copy
            for copy in self.copies
            if not copy.state.is_aligned and not copy.state.is_over and not self._commits.is_under_way(copy)
        ]

    # Fetching

    def _send_fetch(self) -> None:
        """Send the next fetch, for all partitions that need data; none if the throttle holds all of them."""
        self._admit()
        if moved := self._throttle.look():
            self._changed.update((copy, None) for copy in self.copies if copy.source.topic in moved)
        for copy in self._changed:
            self._update_fetch(copy)
        self._changed.clear()
        if self._throttle.may_fetch():
            self._fetcher.send(at_most_bytes=self._throttle.fetch_bytes)

    def _update_fetch(self, copy: PartitionCopy) -> None:
        """Add a partition to the next fetch request at its fetch offset, or remove it from the request."""
        if not copy.needs_data or copy.source.topic in self._throttle.paused:
            self._fetcher.forget(copy.source)
        else:
            known_end = -1 if copy.range.is_open else copy.range.end_offset
            self._fetcher.ask(
                FetchFrom(
                    copy.source,
                    copy.intake.fetch_offset,
                    copy.progress.source_leader_epoch,
                    known_end,
                    topic_id=copy.source_topic_id,
                )
            )
            if copy.is_silent:
                # Only the first partition of a full request gets its next batch whole, if there is one.
                self._fetcher.start_over(copy.source)

    def _is_wanted(self, copy: PartitionCopy) -> bool:
        """Whether the fetches ask for a partition from its fetch offset on."""
        asked = self._fetcher.wanted.get(copy.source)
        return asked is not None and asked.offset == copy.intake.fetch_offset

    # A response

    def _take(self, response: FetchResponse) -> list[PartitionCopy]:
        """Decide about everything that a response brings, and queue it; return the partitions it affects."""
        if response.error_code:
            raise ProtocolError(
                f"{self._source} refuses Fetch with {named_code(response.error_code)}. The broker's log has "
                "the reason"
            )
        # A source that lists a partition twice does not make it send twice.
        parts = {
            copy: each
            for each in response.partitions
            if (copy := self._by_source.get(TopicPartition(each.topic, each.partition))) is not None
        }
        brings = [copy for copy, part in parts.items() if len(part.record_set) and copy.state.is_aligned]
        self._look_at_topics(brings)
        if self._settings.tries_multi_batch:
            self._sender.query([copy for copy in brings if has_several(parts[copy].record_set)], self.copies)
        throttled = response.throttle_time_ms > 0
        touched = [copy for copy, part in parts.items() if self._take_part(copy, part, throttled=throttled)]
        self._changed.update(dict.fromkeys(touched))
        return touched

    def _look_at_topics(self, brings: Collection[PartitionCopy]) -> None:
        """Let partitions lose track whose topic was created again; requests may list topics by name."""
        if brings:
            self._metadata.refresh(
                self.copies,
                source=not self._fetcher.lists_ids,
                destination=not self._sender.lists_ids,
                older_than_s=self._timing.recreated_after_s,
            )

    def _take_part(self, copy: PartitionCopy, fetched: FetchedPartition, *, throttled: bool) -> bool:
        """Take a partition's part of a response; return whether it changes the partition."""
        size = len(fetched.record_set)
        if not copy.state.is_aligned or not self._is_wanted(copy):
            # A partition that failed since it was asked for has moved back.
            return bool(size or fetched.error_code)
        if fetched.error_code:
            self._source_refuses(copy, fetched.error_code)
            return True
        level = self._settings.source.isolation_level
        committed = level is IsolationLevel.READ_COMMITTED
        copy.update_end_offset(fetched.end_offset(committed=committed), fetched.high_watermark)
        if size and self._spent_on(copy.take(fetched, level, self._memory), copy):
            copy.state.waiting_for = None
            return True
        is_first = self._fetcher.first_of_full == copy.source
        if not throttled and is_first and fetched.preferred_read_replica < 0:
            self._nothing_for_the_first(copy, fetched)
            return True
        if size:
            self._fetcher.start_over(copy.source)  # cut short; the first's is not
        return size > 0

    def _nothing_for_the_first(self, copy: PartitionCopy, fetched: FetchedPartition) -> None:
        """React to no batch: the first in a full request gets its next batch, whole, if there is one."""
        offset, end = copy.intake.fetch_offset, copy.source_end
        if len(fetched.record_set):
            copy.suspect(offset, f"{self._source} sent the batch at offset {offset} cut short")
        elif copy.range.is_open and end <= offset:
            pass  # that is all, for now
        elif copy.range.is_open or end >= copy.range.end_offset:
            take_empty_answer(copy, self._source)
        else:
            # The alignment finds out whether the log was cut.
            copy.wait(f"{self._source}'s log ends at {end}, before offset {copy.range.end_offset}")

    def _source_refuses(self, copy: PartitionCopy, error_code: int) -> None:
        code = ErrorCode.of(error_code)
        offset = copy.intake.fetch_offset
        problem = self._source.config.problem_of(copy.source)
        if isinstance(problem, BeingDownloaded):
            # The partition stays in the requests, which the archive answers after its wait.
            if problem.for_s > self._timing.stalled_s:
                copy.state.waiting_for = str(problem)
        elif problem is not None:
            copy.fail(problem, offset)
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            # The alignment finds out which end of the log it is, and how to continue.
            copy.out_of_range = True
            copy.suspect(offset, f"{self._source} does not have offset {offset}")
        elif code is ErrorCode.CORRUPT_MESSAGE:
            copy.suspect(offset, f"{self._source} has the batch at offset {offset} damaged")
        elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            remedy = self._settings.remedy_by(Acl("source", "topic", copy.source.topic, "READ"))
            copy.stop(f"{self._source} refuses to be read: {named_code(error_code)}: {remedy}")
        else:
            copy.fail(BrokerError(error_code, f"offset {offset} of {copy.source} on {self._source}"), offset)

    # Producing

    def _produce_slices(self, touched: Sequence[PartitionCopy]) -> None:
        """Produce all but the last slice of responses that have more runs than a commit has room for."""
        sliced = [copy for copy in touched if copy.intake.has_rest]
        while sliced:
            self._produce(sliced)
            taken = [copy for copy in sliced if self._spent_on(copy.take_slice(), copy)]
            sliced = [copy for copy in taken if copy.intake.has_rest]

    def _spent_on(self, has_taken: bool, copy: PartitionCopy) -> bool:
        """Let the throttle count what a partition has just taken, if it has; return that."""
        if has_taken:
            self._throttle.spend(copy.intake.taken_bytes)
        return has_taken

    def _produce(self, touched: Sequence[PartitionCopy]) -> None:
        """Send everything queued, wait until nothing is in flight, and bring the positions up to date."""
        ahead = self._commits.unplanned(touched)
        behind_gaps = set(ahead)
        self._send([copy for copy in touched if copy not in behind_gaps])
        if ahead:
            self._commits.plan(ahead)
            self._send(ahead)
        for copy in touched:
            copy.settle()
            # A shorter plan begins behind the last acknowledged batch, which may be fetched already.
            if not copy.state.is_aligned or (copy.needs_data and not self._is_wanted(copy)):
                self._changed[copy] = None

    def _send(self, copies: Sequence[PartitionCopy]) -> None:
        self._look_at_topics([copy for copy in copies if copy.progress.has_queued])
        self._sender.send_all(copies)
