"""The options for access to metrics and page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...timing import DEFAULT_TIMING, Timing

__all__ = ["OPEN", "HttpAccess"]


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """
    The options for access to metrics and page.

    Attributes:
        hosts: Accepted names in the Host header besides this machine's: names of proxies, and in DNS.
        token_file: The file with the token that every request must have; None for none.
        timing: How long the server waits for clients.

    """

    hosts: tuple[str, ...] = ()
    token_file: Path | None = None
    timing: Timing = DEFAULT_TIMING

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> HttpAccess:
        """Return the access that the options ``http_…`` describe, as a user gave them."""
        hosts, token_file = given.get("http_hosts") or (), given.get("http_token_file")
        return cls(
            tuple(hosts.split(",") if isinstance(hosts, str) else hosts),
            Path(token_file) if token_file else None,
        )


#: All clients that reach the address.
OPEN = HttpAccess()
