"""
What large requests and answers of all clients may take of the gateway's memory together.

Requests and answers have a bound each. A thread asks for a request's memory first, then for its turn
(:mod:`.working`), and then for the answer's: so nobody who holds what another waits for waits for him.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from ..net.memory_budget import MemoryBudget, Share
from .client_connection import Client
from .working import LARGE_BYTES

__all__ = ["MessageMemory"]

#: Of answers that are encoded anew, while their clients take them: twice the largest by default, which is the
#: metadata of 200,000 topics (:mod:`..client.answer_sizes`).
_ANSWERS_BYTES = 128 * 1024 * 1024

_REQUEST_TOO_SLOW = (
    "a request of {size} bytes from {host} was not received while others waited for memory "
    "(--max-queued-request-bytes is {most}); its connection was closed"
)
_ANSWER_TOO_SLOW = (
    "an answer of {size} bytes was not taken by {host} while others waited for memory "
    "(all have {most} bytes); its connection was closed"
)


class MessageMemory:
    """Shares memory out to messages that are larger than what each connection may have. For all threads."""

    def __init__(self, request_bytes: int, tell: Callable[[str], object]) -> None:
        """
        Begin with nothing taken.

        Args:
            request_bytes: What requests may take together.
            tell: Takes a sentence when a client was hung up on for others.

        """
        self._requests = MemoryBudget(request_bytes, tell, _REQUEST_TOO_SLOW)
        self._answers = MemoryBudget(_ANSWERS_BYTES, tell, _ANSWER_TOO_SLOW)

    def request(self, client: Client, size_bytes: int) -> AbstractContextManager[Share | None]:
        """Wait until there is room for a request that is to be received, and keep it; None if it is small."""
        if size_bytes <= LARGE_BYTES:
            return nullcontext()
        return self._requests.share(client.socket, size_bytes)

    def answer(self, client: Client, size_bytes: int) -> AbstractContextManager[Share | None]:
        """Wait until there is room for an answer that is to be sent, and keep it; None if it is small."""
        if size_bytes <= LARGE_BYTES:
            return nullcontext()
        return self._answers.share(client.socket, size_bytes, client.check_answer)
