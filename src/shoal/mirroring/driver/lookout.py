"""A thread of the driver that examines both clusters at each ``--refresh``, while tasks copy."""

from __future__ import annotations

import abc
import threading
from typing import ClassVar, Self

from ...client.cluster import Cluster, is_transient
from ...errors import ShoalError
from ..model.text import once_each
from .running import Running

__all__ = ["Lookout"]


class Lookout(abc.ABC):
    """
    A thread that calls :meth:`look` every ``refresh_s`` until the ``with`` block ends.

    A mirror runs for months, so a failed look does not end the thread. It is a warning, unless a later look
    can succeed.

    Attributes:
        failure: The beginning of that warning.

    """

    failure: ClassVar[str]

    def __init__(self, mirror: Running) -> None:
        """Prepare the thread; it gives each warning once."""
        self._mirror = mirror
        self._options = mirror.options
        self._schedule = mirror.schedule
        self._warn = once_each(mirror.warn_in_report)
        self._over = threading.Event()
        name = f"shoal-{type(self).__name__.lower()}"
        self._thread = threading.Thread(target=self._keep_looking, name=name, daemon=True)

    @abc.abstractmethod
    def look(self, source: Cluster, destination: Cluster) -> None:
        """Examine both clusters once."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        # The thread may be waiting for a broker. It holds only its own connections.
        self._thread.join(timeout=1.0)

    def _keep_looking(self) -> None:
        options = self._options
        with (
            Cluster(options.source.impatient()) as source,
            Cluster(options.destination.impatient()) as destination,
        ):
            while not self._over.wait(options.refresh_s):
                try:
                    self.look(source, destination)
                except Exception as error:
                    if not (isinstance(error, ShoalError) and is_transient(error)):
                        self._warn(f"{self.failure}{error}")
