"""
TLS and SASL of broker connections, configured by the properties of Kafka's Java clients.

``properties`` reads Java's properties (with ``jaas``, ``oauth_properties``, ``kerberos`` and ``stores``) into
a :class:`Security`, which has all certificates and passwords in memory: no connection reads a file again, but
that of a token, keytab or ticket. ``tls`` and ``sasl`` use it; ``tokens`` gets and keeps access tokens.
"""

from .login import LEAST_SCRAM_ITERATIONS, LoginRefused, NoCredentials, PasswordLogin, Security
from .properties import SECURITY_PROPERTIES, read_security
from .sasl import LEAST_ITERATIONS_PROPERTY, begin_exchange
from .tls import TLS_ADVICE, TlsSettings, connect_tls, tls_refusal

__all__ = [
    "LEAST_ITERATIONS_PROPERTY",
    "LEAST_SCRAM_ITERATIONS",
    "SECURITY_PROPERTIES",
    "TLS_ADVICE",
    "LoginRefused",
    "NoCredentials",
    "PasswordLogin",
    "Security",
    "TlsSettings",
    "begin_exchange",
    "connect_tls",
    "read_security",
    "tls_refusal",
]
