"""The options for access to metrics and page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ... import kinds
from ...declare import option
from ...timing import DEFAULT_TIMING, Timing

__all__ = ["OPEN", "HttpAccess", "HttpOptions"]


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


#: All clients that reach the address.
OPEN = HttpAccess()


def _parse_hosts(option: str, value: str | Iterable[str]) -> tuple[str, ...]:
    return tuple(value.split(",") if isinstance(value, str) else value)


@dataclass(frozen=True, kw_only=True)
class HttpOptions:
    """The options for access to metrics and page."""

    http_hosts: tuple[str, ...] = option(
        kinds.names("NAME[,NAME...]", _parse_hosts),
        "names that requests may have in the Host header besides localhost, addresses and this machine's "
        "name, such as those of proxies",
        default=(),
        group="monitoring",
        name="http-host",
    )
    http_token_file: str | None = option(
        kinds.FILE,
        "answer only requests with the token in this file (mode 0600): as a bearer token, or as the password "
        "that a browser asks for",
        default=None,
        group="monitoring",
    )

    @property
    def http(self) -> HttpAccess:
        """The requests that metrics and page answer."""
        return HttpAccess(self.http_hosts, Path(self.http_token_file) if self.http_token_file else None)
