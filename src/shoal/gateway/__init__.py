"""
A Kafka protocol proxy in front of a cluster that has left old clients behind.

Requests in versions that the cluster supports pass through. If Kafka 4 has removed a version (KIP-896), the
gateway sends the request in a newer one and translates the answer. Record sets are down-converted while they
are sent (KIP-283).
"""

from ..net.server_tls import TlsFiles
from .allowed_apis import parse_apis
from .gateway import Gateway
from .login import MECHANISMS, UserFile, make_entry
from .settings import GatewaySettings

__all__ = [
    "MECHANISMS",
    "Gateway",
    "GatewaySettings",
    "TlsFiles",
    "UserFile",
    "make_entry",
    "parse_apis",
]
