"""The fetches from several leaders: one request to each is under way, and one thread receives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from ..errors import ShoalError, raise_for
from ..protocol.fetch import FetchedPartition
from ..topic_partition import TopicPartition
from .fetch import Fetcher, FetchFrom
from .wakeup import Wakeup, wait_for_answers

__all__ = ["Answer", "Fetchers"]


class Answer(NamedTuple):
    """
    A leader's answer about one partition.

    Attributes:
        asked: The request.
        fetched: Its part of the response, or the error in place of it.
        has_next: Whether it has the partition's next batch, whole, if there is one. Only the first partition
            of a full request always gets it.

    """

    asked: FetchFrom
    fetched: FetchedPartition | ShoalError
    has_next: bool = False


class Fetchers:
    """A fetcher for each leader, by its node id."""

    def __init__(self, open_to: Callable[[int], Fetcher], answer_s: float) -> None:
        """
        Prepare.

        Args:
            open_to: Connects to a leader, with the first partition that is wanted of it.
            answer_s: The limit of an answer, beside the time for which a leader may wait for records.

        """
        self._open_to = open_to
        self._answer_s = answer_s
        self._fetchers: dict[int, Fetcher] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is still to come."""
        return any(fetcher.is_waiting for fetcher in self._fetchers.values())

    @property
    def leaders(self) -> Collection[int]:
        """The leaders that something was fetched from."""
        return self._fetchers.keys()

    def want(self, leader: int, wanted: Collection[FetchFrom]) -> bool:
        """
        Fetch these partitions from a leader, and no others, from the next request on.

        Returns:
            Whether a request may be sent now: not if one is under way, which leaves all as it is.

        Raises:
            ShoalError: The leader cannot be reached.

        """
        fetcher = self._fetchers.get(leader)
        if fetcher is not None and fetcher.is_waiting:
            return False
        if fetcher is None or fetcher.connection.closed:
            if not wanted:
                return False
            fetcher = self._fetchers[leader] = self._open_to(leader)
        before = dict(fetcher.wanted)
        for each in wanted:
            if before.pop(each.partition, None) != each:
                fetcher.ask(each)
        for partition in before:
            fetcher.forget(partition)
        return True

    def send(self, leader: int, at_most_bytes: int | None = None) -> None:
        """Send the next request to a leader; see :meth:`Fetcher.send`."""
        try:
            self._fetchers[leader].send(at_most_bytes)
        except ShoalError:
            self._fetchers.pop(leader).close()
            raise

    def receive(self, wakeup: Wakeup, timeout_s: float) -> Iterator[Answer]:
        """
        Wait for answers or a wakeup, and yield the part of each partition, or the error of its leader.

        No answer within the limit is an error, too: another may lead by then.

        """
        waiting = {
            fetcher.connection: leader for leader, fetcher in self._fetchers.items() if fetcher.is_waiting
        }
        answered = wait_for_answers(waiting, wakeup, timeout_s)
        # A host that is gone closes no connection.
        late = [each for each, leader in waiting.items() if self._fetchers[leader].is_overdue(self._answer_s)]
        for connection in dict.fromkeys([*answered, *late]):
            fetcher = self._fetchers[waiting[connection]]
            wanted = dict(fetcher.wanted)
            try:
                if connection not in answered:
                    raise connection.fail(BlockingIOError("no answer"))
                response = fetcher.receive()
                raise_for(response.error_code, f"fetching from {connection.address}")
            except ShoalError as error:
                self._fetchers.pop(waiting[connection]).close()
                yield from (Answer(each, error) for each in wanted.values())
                continue
            for fetched in response.partitions:
                asked = wanted.pop(TopicPartition(fetched.topic, fetched.partition), None)
                if asked is not None:  # a leader may list a partition twice
                    yield Answer(asked, fetched, has_next=fetcher.first_of_full == asked.partition)

    def put_first(self, partition: TopicPartition) -> None:
        """Let the next request to a partition's leader be a full one, with the partition first."""
        for fetcher in self._fetchers.values():
            if partition in fetcher.wanted:
                fetcher.start_over(partition)

    def close(self) -> None:
        """Close all connections."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
