"""A thread of the driver that examines both clusters at each ``--refresh``, while tasks copy."""

from __future__ import annotations

import abc
import threading
import time
from typing import ClassVar, Self

from ...client.cluster import Cluster, is_transient
from ...errors import ShoalError
from ..model.text import once_each
from .running import Running

__all__ = ["Lookout", "Watch"]

#: Looks take at most this part of a core: at 10,000 partitions one takes a second of CPU.
_MOST_BUSY = 1 / 60


class Watch(abc.ABC):
    """
    One thing that a mirror looks for.

    Attributes:
        failure: The beginning of the warning that it cannot look.
        needs_all_topics: Whether it looks at topics of the source that are not mirrored.
        over: Set once the mirror ends, or stops looking.

    """

    failure: ClassVar[str]
    needs_all_topics: ClassVar[bool] = False

    def __init__(self, mirror: Running) -> None:
        """Prepare; it gives each warning once."""
        self.over = threading.Event()
        self._mirror = mirror
        self._options = mirror.options
        self._schedule = mirror.schedule
        self._warn = once_each(mirror.warn_in_report)

    @abc.abstractmethod
    def look(self, source: Cluster, destination: Cluster) -> None:
        """Examine both clusters once; the metadata of the source are new."""

    def warn_of(self, error: Exception) -> None:
        """Warn of an error, unless a later look can succeed: a mirror runs for months."""
        if not (isinstance(error, ShoalError) and is_transient(error)):
            self._warn(f"{self.failure}{error}")


class Lookout:
    """
    Lets each watch look in turn, every ``refresh_s`` until the ``with`` block ends.

    With many partitions the pause is longer, so that an idle mirror stays cheap.

    """

    def __init__(self, mirror: Running, *watches: Watch) -> None:
        """Prepare the thread; without a watch it does not start."""
        self._options = mirror.options
        self._schedule = mirror.schedule
        self._watches = watches
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="shoal-lookout", daemon=True)

    def look(self, source: Cluster, destination: Cluster) -> None:
        """Look once."""
        needs_all = any(each.needs_all_topics for each in self._watches)
        try:
            source.refresh(None if needs_all else self._schedule.names)
        except Exception as error:
            self._watches[0].warn_of(error)
            return
        for each in self._watches:
            try:
                each.look(source, destination)
            except Exception as error:
                each.warn_of(error)

    def __enter__(self) -> Self:
        if self._watches:
            self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        for event in (self._over, *(each.over for each in self._watches)):
            event.set()
        # The thread may be waiting for a broker. It holds only its own connections.
        if self._watches:
            self._thread.join(timeout=1.0)

    def _keep_looking(self) -> None:
        options = self._options
        with (
            Cluster(options.source.impatient()) as source,
            Cluster(options.destination.impatient()) as destination,
        ):
            pause_s = options.refresh_s
            while not self._over.wait(pause_s):
                began_s = time.thread_time()
                self.look(source, destination)
                pause_s = max(options.refresh_s, (time.thread_time() - began_s) / _MOST_BUSY)
