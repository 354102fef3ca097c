"""
A limited good that clients share: cores, bytes of memory, or the connections of a server.

The next share goes to the client that holds the least, then to the one that was served longest ago. So a
client with many connections or expensive requests delays another client by the running shares alone.
A share that depends on its client can be ended to make room: that of a client that does not read its answer,
or of a connection that has not proven itself.
"""

from __future__ import annotations

import ipaddress
import itertools
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Budget", "Refused", "Share", "network_of"]

#: The smallest network that a provider gives to a customer (RFC 6177): its addresses count as one client.
_IPV6_PREFIX = 64

#: The interval at which a wait calls its check.
_LOOK_S = 0.25


class Refused(Exception):
    """
    There is no room for a share, and none comes.

    Attributes:
        is_of_network: Whether the client's own limit is reached, and not that of all clients.

    """

    def __init__(self, *, is_of_network: bool) -> None:
        super().__init__("there is no room")
        self.is_of_network = is_of_network


@dataclass(eq=False, slots=True)
class Share:
    """
    A client's share.

    Attributes:
        network: The client, as :func:`network_of` returns it.
        end: Makes the holder give the share back; it waits for nothing. None while it must not be ended.
        is_ended: Whether it was ended to make room.

    """

    network: str
    amount: int = 1
    end: Callable[[], object] | None = None
    is_ended: bool = False
    _granted: threading.Event = field(default_factory=threading.Event)


class Budget:
    """Shares of one good. Safe to use from several threads."""

    def __init__(
        self,
        most: int,
        *,
        most_of_network: int | None = None,
        patience_s: float = math.inf,
        again_s: float = math.inf,
        refusal_s: float = math.inf,
    ) -> None:
        """
        Begin with all of it free.

        Args:
            most: The limit for all shares. A larger share waits until it is alone.
            most_of_network: The limit for the shares of one client; None for no limit of its own.
            patience_s: The wait before another share is ended.
            again_s: The wait before one more share is ended.
            refusal_s: The longest wait for the shares that were ended.

        """
        self._most = most
        self._most_of_network = most_of_network
        self._patience_s = patience_s
        self._again_s = again_s
        self._refusal_s = refusal_s
        #: Oldest first, both.
        self._held: dict[Share, None] = {}
        self._waiting: dict[Share, None] = {}
        #: By client, while it holds or waits for something.
        self._amounts: Counter[str] = Counter()
        self._served: dict[str, int] = {}
        self._turns = itertools.count(1)
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """The number of shares that are held."""
        return len(self._held)

    @property
    def waiting(self) -> int:
        """The number of shares that wait."""
        return len(self._waiting)

    @contextmanager
    def share(
        self, network: str, amount: int = 1, check: Callable[[], object] | None = None
    ) -> Iterator[Share]:
        """Wait for a share, and hold it until the block ends; see :meth:`take`."""
        mine = self.take(network, amount, check=check)
        try:
            yield mine
        finally:
            self.give_back(mine)

    def take(
        self,
        network: str,
        amount: int = 1,
        end: Callable[[], object] | None = None,
        check: Callable[[], object] | None = None,
    ) -> Share:
        """
        Wait for a share, and return it.

        Args:
            network: The client.
            amount: The size of the share.
            end: As in :class:`Share`.
            check: Called repeatedly during the wait; if it raises, the wait ends.

        Raises:
            Refused: No share could be ended for this one, or those that were ended are still held.

        """
        mine = Share(network, amount, end)
        with self._lock:
            self._waiting[mine] = None
            self._grant()
        try:
            self._wait(mine, check)
        except BaseException:  # of the check, or Ctrl-C in the main thread
            self.give_back(mine)
            raise
        return mine

    def give_back(self, share: Share) -> None:
        """Free a share; if it was never granted, stop to wait for it."""
        with self._lock:
            if share in self._held:
                del self._held[share]
                self._amounts[share.network] -= share.amount
            else:
                self._waiting.pop(share, None)
            self._grant()
            if not self._amounts[share.network] and all(
                each.network != share.network for each in self._waiting
            ):
                del self._amounts[share.network]
                self._served.pop(share.network, None)

    def make_room(self) -> None:
        """End one share, if one can be, because something else ran out."""
        with self._lock:
            end = _chosen(self._held)
        if end is not None:
            end()

    def _wait(self, mine: Share, check: Callable[[], object] | None) -> None:
        begun = time.monotonic()
        next_end = begun + self._patience_s
        while not mine._granted.is_set():
            if check is not None:
                check()
            now = time.monotonic()
            if now >= next_end:
                self._end_another(mine, is_late=now - begun >= self._refusal_s)
                next_end = now + self._again_s
            mine._granted.wait(min(_LOOK_S, max(next_end - now, 0.0)))

    def _grant(self) -> None:
        """Give free room to those that wait."""
        while (following := self._following()) is not None and self._has_room(following):
            del self._waiting[following]
            self._held[following] = None
            self._amounts[following.network] += following.amount
            self._served[following.network] = next(self._turns)
            following._granted.set()

    def _following(self) -> Share | None:
        waiting = [each for each in self._waiting if not self._is_crowded(each)]
        return min(
            waiting,
            key=lambda each: (self._amounts[each.network], self._served.get(each.network, 0)),
            default=None,
        )

    def _is_crowded(self, share: Share) -> bool:
        limit = self._most_of_network
        return limit is not None and self._amounts[share.network] + share.amount > limit

    def _has_room(self, share: Share) -> bool:
        held = self._amounts.total()
        return not held or held + share.amount <= self._most

    def _end_another(self, mine: Share, *, is_late: bool) -> None:
        """End the oldest share that can be, of the client that holds the most of these."""
        with self._lock:
            is_crowded = self._is_crowded(mine)
            if mine._granted.is_set() or not (is_crowded or self._following() is mine):
                return
            crowd = [each for each in self._held if not is_crowded or each.network == mine.network]
            end = _chosen(crowd)
            if end is None and (is_late or not any(each.is_ended for each in crowd)):
                raise Refused(is_of_network=is_crowded)
        if end is not None:
            end()


def _chosen(crowd: Iterable[Share]) -> Callable[[], object] | None:
    """Choose the share to be ended of these, under the lock, and return its end; None if none can be."""
    ending = [(each, end) for each in crowd if (end := each.end) and not each.is_ended]
    amounts: Counter[str] = Counter()
    for each, _ in ending:
        amounts[each.network] += each.amount
    chosen = max(ending, key=lambda found: amounts[found[0].network], default=None)
    if chosen is None:
        return None
    share, end = chosen
    share.is_ended = True
    return end


def network_of(host: str) -> str:
    """Return the unit that counts as one client: an IPv4 address, an IPv6 network of 64 bits, or a name."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))
