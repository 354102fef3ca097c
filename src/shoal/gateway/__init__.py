"""
A Kafka protocol proxy in front of a cluster that has left old clients behind.

What the cluster still speaks passes through; what Kafka 4 removed (KIP-896) is asked in a newer version,
and the answer is given in the old one. Record sets are down-converted while they are sent (KIP-283).
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
