"""
TLS and SASL of broker connections, configured by the properties of Kafka's Java clients.

``properties`` reads Java's properties (with ``jaas`` and ``stores``) into a :class:`Security`, which
has all certificates and passwords in memory: no connection reads a file again. ``tls`` and ``sasl`` use it.
"""

from .access import LEAST_SCRAM_ITERATIONS, Security
from .properties import SECURITY_PROPERTIES, read_security
from .sasl import LEAST_ITERATIONS_PROPERTY, SaslExchange
from .tls import TLS_ADVICE, connect_tls, tls_refusal

__all__ = [
    "LEAST_ITERATIONS_PROPERTY",
    "LEAST_SCRAM_ITERATIONS",
    "SECURITY_PROPERTIES",
    "TLS_ADVICE",
    "SaslExchange",
    "Security",
    "connect_tls",
    "read_security",
    "tls_refusal",
]
