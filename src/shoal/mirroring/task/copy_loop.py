"""
The copy loop: one turn of copying, from one source leader to one destination leader.

Strategy. A fetch response has record sets of many partitions. Each partition decides about its batches and
stamps them where they lie in the fetch buffer, and views of the buffer go out: many partitions in a
request, several requests in flight, several requests in one system call. The worker has already asked for
the next fetch, so the source works while the destination does.

Invariants:

- Before the buffer is used again, everything in it is acknowledged or forgotten: :meth:`CopyLoop.produce`
  returns with nothing in flight, and only then may the worker call :meth:`CopyLoop.receive` again.
- A partition has one batch in a request, unless the broker accepts several. The loop queries the broker
  once a response has several, and again on each connection (``client/multi_batch.py``).
- A turn examines only partitions in the response, and partitions that wait: of a thousand, most may be
  idle.
- Nothing is fetched or sent for a partition that is not aligned, and no partition is aligned in a loop.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from ...client.cluster import Cluster
from ...client.config import IsolationLevel
from ...client.fetch import Fetcher, FetchFrom
from ...error_codes import ErrorCode, named_code
from ...errors import ProtocolError
from ...protocol.fetch import FetchedPartition, FetchResponse
from ...records import has_several
from ...topic_partition import TopicPartition
from ..control import WorkerControl
from ..model.acls import Acl
from ..model.copy_options import CopySettings
from .committer import Commits
from .destination_leader import DestinationLeader
from .lost_range import ends_with_the_log
from .partition import PartitionCopy
from .sender import Sender
from .small_batches import SmallBatchesWatch
from .source_gaps import SourceGaps
from .throttle import Throttle

__all__ = ["CopyLoop", "Turn"]


class Turn(NamedTuple):
    """
    The result of one fetch response.

    Attributes:
        touched: The partitions that the response changes.
        fetched_bytes: The size of its record sets.
        is_last: Whether the partitions need connections of different sorts, so that the loop has to end.

    """

    touched: Sequence[PartitionCopy]
    fetched_bytes: int
    is_last: bool


class CopyLoop:
    """
    Copies partitions that share a source leader and a destination leader, for the worker that drives it.

    A turn is :meth:`receive`, :meth:`take`, :meth:`send_fetch` and :meth:`produce`, in this order, with the
    worker's decisions in between. After :meth:`produce` nothing is in flight, and the positions are up to
    date. A partition that fails leaves the loop at once, and comes back with its next alignment.

    A context manager: if an exception ends it, partitions with requests in flight have lost track, and the
    others can go on elsewhere.

    Each method raises Disconnected if a leader is gone, and Stopped or BrokerError if the lease lapsed.

    """

    def __init__(
        self,
        copies: Sequence[PartitionCopy],
        fetcher: Fetcher,
        leader: DestinationLeader,
        *,
        source: Cluster,
        destination: Cluster,
        settings: CopySettings,
        control: WorkerControl,
        throttle: Throttle,
        gaps: SourceGaps,
        commits: Commits,
        small_batches: SmallBatchesWatch,
    ) -> None:
        """
        Prepare the loop; :meth:`send_fetch` sends the first request.

        Args:
            copies: Aligned partitions.
            fetcher: A fetcher on a connection to their source leader.
            source: The cluster to read, for names in messages and for leader epochs.
            destination: The cluster to write, for names in messages and for leader epochs.
            control: Holds the lease, which is checked before each fetch and each request.
            throttle: The worker's throttle: it decides what :meth:`send_fetch` may ask for.
            gaps: Decides about partitions of which the source sends nothing, though their logs go on.
            commits: Commits the maps before what they lead to is sent.
            small_batches: Looks at what is sent.

        """
        self._copies = {copy.source: copy for copy in copies}
        #: Partitions whose part of the fetch request may have to change, in this order.
        self._changed = dict.fromkeys(copies)
        #: Aligned partitions that are not due.
        self._waiting: dict[PartitionCopy, None] = {}
        self._fetcher = fetcher
        self._leader = leader
        self._source = source
        self._destination = destination
        self._settings = settings
        self._recreated_after_s = settings.timing.recreated_after_s
        self._control = control
        self._throttle = throttle
        self._gaps = gaps
        self._commits = commits
        #: Topics that are paused, and since when: they are not in the fetch request.
        self._held: dict[str, float] = {}
        #: Whether the throttle holds everything: there is no fetch on its way.
        self.is_held = False
        self._answered_at = 0.0
        #: Whether something comes back with the next fetch that was held for so long that a topic may have
        #: been created again.
        self._was_held_long = False
        self._fetch_sent_at = 0.0
        #: When batches were sent last to the partitions of topics that are listed by name.
        self._sent_at: dict[PartitionCopy, float] = dict.fromkeys(copies, time.monotonic())
        self._sender = Sender(leader, destination, settings, control, small_batches)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            for copy in self._copies.values():
                copy.refetch()

    @property
    def is_waiting(self) -> bool:
        """Whether a fetch response is on its way."""
        return self._fetcher.is_waiting

    def receive(self) -> FetchResponse:
        """Wait for the fetch response; its bytes are valid until the next call."""
        self._control.check_lease()
        response = self._fetcher.receive()
        if self._throttle.is_on:
            self._answered_at = time.monotonic()
        return response

    @property
    def was_away(self) -> bool:
        """
        Whether so much time has passed since the fetch that a topic may have been created again.

        Then the worker has to look at the topics of both sides before :meth:`take`: the response may be of
        another topic.

        """
        return self._was_held_long or time.monotonic() - self._fetch_sent_at > self._recreated_after_s

    def take(self, response: FetchResponse) -> Turn:
        """Decide about everything that a response brings, stamp it, and queue it."""
        if response.error_code:
            raise ProtocolError(
                f"{self._source} refuses Fetch with {named_code(response.error_code)}. The broker's log has "
                "the reason"
            )
        if self._settings.tries_multi_batch:
            self._query_multi_batch(response)
        self._was_held_long = False  # the worker has looked at the topics
        # Each sort of partition needs a connection of its own, and gets a loop. It fetches this again.
        is_last = self._leader.needs_two_connections
        touched = [] if is_last else self._take(response)
        size = sum(len(each.record_set) for each in response.partitions)
        return Turn(touched, size, is_last)

    # Fetching

    def send_fetch(self) -> None:
        """Send the next fetch, for all partitions that need data; none if the throttle holds all of them."""
        self._throttle.look()
        if self._throttle.is_on or self._held:
            self._hold()
        for copy in self._waiting:
            if copy.state.is_due or not copy.needs_data:
                self._changed[copy] = None
        for copy in self._changed:
            self._update_fetch(copy)
        self._changed.clear()
        if self._throttle.is_on:
            self._throttle.ask(self._topics_behind())
        if self._throttle.is_on or self.is_held:
            self._was_held_long |= time.monotonic() - self._answered_at > self._recreated_after_s
            self.is_held = not self._throttle.may_fetch and any(map(_is_missing_data, self._copies.values()))
            if self.is_held:
                return
        # All tasks of a window end together: a longer fetch would delay the next one.
        is_sent = self._fetcher.send(
            self._control.remaining_s * 1000, self._throttle.fetch_bytes if self._throttle.is_on else None
        )
        self.is_held = (
            bool(self._held)
            and not is_sent
            and any(
                copy.source.topic in self._held for copy in self._copies.values() if _is_missing_data(copy)
            )
        )
        self._fetch_sent_at = time.monotonic()

    def _hold(self) -> None:
        """Take topics that are paused out of the next fetch, and put the others back into it."""
        held, now = self._throttle.paused if self._throttle.is_on else frozenset[str](), time.monotonic()
        if held == self._held.keys():
            return
        released = self._held.keys() - held
        # Meanwhile a topic may have been deleted and created again.
        self._was_held_long |= any(now - self._held[topic] > self._recreated_after_s for topic in released)
        moved = held ^ self._held.keys()
        self._held = {topic: self._held.get(topic, now) for topic in held}
        self._changed.update((copy, None) for copy in self._copies.values() if copy.source.topic in moved)

    def _topics_behind(self) -> Iterator[str]:
        """Yield the topic of each partition that has something to fetch now."""
        for copy in self._copies.values():
            end = copy.known_end_offset
            if copy.needs_data and (end is None or copy.intake.fetch_offset < end):
                yield copy.source.topic

    def _update_fetch(self, copy: PartitionCopy) -> None:
        """Add a partition to the next fetch request at its fetch offset, or remove it from the request."""
        self._waiting.pop(copy, None)
        if not copy.needs_data:
            self._fetcher.forget(copy.source)
        elif not copy.state.is_due:
            self._waiting[copy] = None
            self._fetcher.forget(copy.source)
        elif copy.source.topic in self._held:
            self._fetcher.forget(copy.source)
        else:
            leader_epoch = self._source.partition(copy.source).leader_epoch
            known_end = -1 if copy.range.is_open else copy.range.end_offset
            self._fetcher.ask(
                FetchFrom(
                    copy.source,
                    copy.intake.fetch_offset,
                    leader_epoch,
                    known_end,
                    topic_id=copy.source_topic_id,
                )
            )
            if copy.intake.empty_answers:
                # Only the first partition of a full request gets its next batch whole, if there is one.
                self._fetcher.start_over(copy.source)

    def _query_multi_batch(self, response: FetchResponse) -> None:
        """Query whether the broker takes several batches in a request, once a response has several."""
        brings_several = {
            copy.destination.topic: copy.destination
            for each in response.partitions
            if has_several(each.record_set)
            and (copy := self._copies.get(TopicPartition(each.topic, each.partition))) is not None
            and copy.sequence_is_offset
        }
        if all(map(self._leader.has_answered_for, brings_several)):
            return
        # All topics at once: each query may take a connection.
        others = {copy.destination.topic: copy.destination for copy in self._copies.values()}
        queried = {**others, **brings_several}
        self._leader.query(
            [partition for topic, partition in queried.items() if not self._leader.has_answered_for(topic)],
            can_be_marked=all(
                copy.sequence_is_offset for copy in self._copies.values() if copy.state.is_aligned
            ),
        )

    def _take(self, response: FetchResponse) -> list[PartitionCopy]:
        """Process a fetch response; return the partitions that it affects."""
        # A source that lists a partition twice does not make it send twice.
        touched: dict[PartitionCopy, None] = {}
        for fetched in response.partitions:
            copy = self._copies.get(TopicPartition(fetched.topic, fetched.partition))
            if copy and self._take_partition(copy, fetched, throttled=response.throttle_time_ms > 0):
                touched[copy] = None
                self._changed[copy] = None
        return list(touched)

    def _take_partition(self, copy: PartitionCopy, fetched: FetchedPartition, *, throttled: bool) -> bool:
        """Take a partition's part of a response; return whether it changes the partition."""
        size = len(fetched.record_set)
        asked = self._fetcher.wanted.get(copy.source)
        if not copy.state.is_aligned or asked is None or asked.offset != copy.intake.fetch_offset:
            # A partition that failed since it was asked for has moved back.
            return bool(size or fetched.error_code)
        if fetched.error_code:
            self._source_refuses(copy, fetched.error_code)
            return True
        committed = self._settings.source.isolation_level is IsolationLevel.READ_COMMITTED
        copy.update_end_offset(fetched.end_offset(committed=committed), fetched.high_watermark)
        if size and copy.take(fetched, self._settings.source.isolation_level):
            if self._throttle.is_on:
                self._throttle.spend(copy.intake.taken_bytes)
            return True
        if not throttled and self._is_first(copy) and fetched.preferred_read_replica < 0:
            self._nothing_for_the_first(copy, fetched)
            return True
        if size:
            self._fetcher.start_over(copy.source)  # cut short; the first's is not
        return size > 0

    def _is_first(self, copy: PartitionCopy) -> bool:
        return self._fetcher.first_of_full == copy.source

    def _nothing_for_the_first(self, copy: PartitionCopy, fetched: FetchedPartition) -> None:
        """React to no batch: the first in a full request gets its next batch, whole, if there is one."""
        committed = self._settings.source.isolation_level is IsolationLevel.READ_COMMITTED
        end = fetched.end_offset(committed=committed)
        offset = copy.intake.fetch_offset
        if len(fetched.record_set):
            copy.suspect(offset, f"{self._source} sent the batch at offset {offset} cut short")
        elif copy.range.is_open and end <= offset:
            pass  # that is all, for now
        elif copy.range.is_open or end >= copy.range.end_offset:
            self._gaps.take_empty_answer(copy, end)
        elif not ends_with_the_log(copy, self._source, self._settings):
            copy.wait(f"{self._source}'s log ends at {end}, before offset {copy.range.end_offset}")

    def _source_refuses(self, copy: PartitionCopy, error_code: int) -> None:
        code = ErrorCode.of(error_code)
        offset = copy.intake.fetch_offset
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            # The alignment finds out which end of the log it is, and how to continue.
            copy.lose_offset()
            copy.suspect(offset, f"{self._source} does not have offset {offset}")
        elif code is ErrorCode.CORRUPT_MESSAGE:
            copy.suspect(offset, f"{self._source} has the batch at offset {offset} damaged")
        elif code.retriable:
            copy.lose_track()
            copy.wait(f"the source's leader ({code.name})")
        elif code.may_pass:
            # The log is the same, so there is nothing to resume.
            copy.wait(
                f"{self._source} to send offset {offset}: the broker answers Fetch with "
                f"{named_code(error_code)}. The broker's log has the reason"
            )
        else:
            remedy = "read the broker's log"
            if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                remedy = self._settings.remedy_by(Acl("source", "topic", copy.source.topic, "READ"))
            copy.stop(f"{self._source} refuses to be read: {named_code(error_code)}: {remedy}")

    # Producing

    def long_unsent(self, turn: Turn) -> list[PartitionCopy]:
        """
        Return the partitions whose topic may have been created again since the last request to it.

        Requests that list topics by name would write to the new one, so the worker has to look at the
        destination's topics before :meth:`produce`. Topic ids (Produce v13) need no look.

        """
        if self._leader.lists_ids:
            return []
        now = time.monotonic()
        queued = [copy for copy in turn.touched if copy.outbound.queue]
        unsent = [copy for copy in queued if now - self._sent_at[copy] > self._recreated_after_s]
        self._sent_at.update(dict.fromkeys(queued, now))
        return unsent

    def drop_lost(self, copies: Iterable[PartitionCopy]) -> None:
        """Drop those of some partitions that lost track since from the next fetch."""
        self._changed.update((copy, None) for copy in copies if not copy.state.is_aligned)

    def produce_slices(self, turn: Turn) -> None:
        """Produce all but the last slice of responses that have more runs than a commit has room for."""
        sliced = [copy for copy in turn.touched if copy.intake.has_rest]
        while sliced:
            self.produce(turn._replace(touched=sliced))
            sliced = [copy for copy in sliced if copy.take_rest() and copy.intake.has_rest]

    def produce(self, turn: Turn) -> None:
        """Send everything queued, wait until nothing is in flight, and bring the positions up to date."""
        self._commits.plan(turn.touched)
        self._sender.send_all([copy for copy in turn.touched if copy.state.is_aligned])
        for copy in turn.touched:
            if copy.state.is_aligned:
                copy.settle(self._destination.partition(copy.destination).leader_epoch)
            else:
                self._changed[copy] = None


def _is_missing_data(copy: PartitionCopy) -> bool:
    """Whether a partition would be fetched if the throttle did not hold it."""
    return copy.needs_data and copy.state.is_due
