"""
The memory that large requests and answers of all clients may take together.

Requests and answers have a limit each. A thread takes a request's memory first, then its turn
(:mod:`.working`), and then the answer's memory. This order excludes deadlocks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from ..timing import Timing
from .client_connection import Client
from .memory_budget import MemoryBudget, Share
from .working import LARGE_BYTES

__all__ = ["MessageMemory"]

#: The limit for answers that the gateway encodes again, until their clients have read them. Twice the largest
#: answer by default, the metadata of 200,000 topics (:mod:`..client.answer_sizes`).
ANSWERS_BYTES = 128 * 1024 * 1024

_REQUEST_TOO_SLOW = (
    "{host} sent a request of {size} bytes too slowly while other requests waited for memory, so the gateway "
    "closed its connection. --max-queued-request-bytes is {most}"
)
_ANSWER_TOO_SLOW = (
    "{host} read an answer of {size} bytes too slowly while other answers waited for memory, so the gateway "
    "closed its connection. All answers together may have {most} bytes"
)


class MessageMemory:
    """Shares memory between messages that are larger than :data:`LARGE_BYTES`. For all threads."""

    def __init__(self, request_bytes: int, warn: Callable[[str], object], timing: Timing) -> None:
        """
        Begin with all memory free.

        Args:
            request_bytes: The limit for all requests together.
            warn: Receives a sentence when the gateway closes a client's connection to free its memory.
            timing: How long a message waits for a slow client.

        """
        self.requests = MemoryBudget(request_bytes, warn, _REQUEST_TOO_SLOW, timing)
        self.answers = MemoryBudget(ANSWERS_BYTES, warn, _ANSWER_TOO_SLOW, timing)

    def request(self, client: Client, size_bytes: int) -> AbstractContextManager[Share | None]:
        """Wait for a request's memory before it is received, and hold it; None if the request is small."""
        if size_bytes <= LARGE_BYTES:
            return nullcontext()
        return self.requests.share(client.socket, size_bytes)

    def answer(self, client: Client, size_bytes: int) -> AbstractContextManager[Share | None]:
        """Wait for an answer's memory before it is sent, and hold it; None if the answer is small."""
        if size_bytes <= LARGE_BYTES:
            return nullcontext()
        return self.answers.share(client.socket, size_bytes, client.check_answer)
