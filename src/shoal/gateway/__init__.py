"""
A Kafka protocol proxy in front of a cluster that has left old clients behind.

Requests in versions that the cluster supports pass through. If Kafka 4 has removed a version (KIP-896), the
gateway sends the request in a newer one and translates the answer. Record sets are down-converted while they
are sent (KIP-283).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .gateway import Gateway
    from .server_tls import TlsFiles
    from .settings import GatewaySettings

__all__ = [
    "Gateway",
    "GatewaySettings",
    "TlsFiles",
]

# Looked up when they are used: for every verb the command line reads the settings' defaults, and the gateway
# takes 0.2 s to import.
_WHERE = {
    "Gateway": "shoal.gateway.gateway",
    "GatewaySettings": "shoal.gateway.settings",
    "TlsFiles": "shoal.gateway.server_tls",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)
