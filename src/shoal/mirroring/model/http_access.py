"""The options for access to metrics and page."""

from __future__ import annotations

from dataclasses import dataclass

from ... import kinds
from ...declare import option
from ...errors import ConfigError
from ...net.address import Address

__all__ = ["HttpOptions"]


@dataclass(frozen=True, kw_only=True)
class HttpOptions:
    """The options for access to metrics and page."""

    http_token_file: str | None = option(
        kinds.FILE,
        "answer only requests with the token in this file (mode 0600): as a bearer token, or as the password "
        "that a browser asks for. Without it, the Host header has to be localhost, an address or this "
        "machine's name",
        default=None,
        group="monitoring",
    )

    def check_served(self, **addresses: Address | None) -> None:
        """
        Refuse a token that no server asks for.

        Args:
            addresses: The addresses that are listened on, by the names of their options.

        Raises:
            ConfigError: There is a token, and no address.

        """
        if self.http_token_file is not None and not any(addresses.values()):
            servers = " or ".join(f"--{name}" for name in addresses)
            raise ConfigError(
                f"--http-token-file {self.http_token_file}: no server asks for the token. Add {servers}, or "
                "leave it out"
            )
