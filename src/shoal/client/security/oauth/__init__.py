"""
OAUTHBEARER (RFC 7628; KIP-255, KIP-768, KIP-1139): tokens from their source to the broker.

``properties`` reads Java's properties into an :class:`OAuthLogin`, which names a source of tokens
(``sources``). ``retrieval`` gets a token from it: from an ``endpoint`` (by a secret, or by an ``assertion``),
a file, a Python class, or signed for ``aws``. ``held`` keeps the tokens of this process, and replaces each
before it expires. ``bearer`` is the exchange with the broker.
"""

from .sources import (
    AssertionFile,
    AwsIam,
    ClientCredentials,
    OAuthLogin,
    SignedAssertion,
    TokenClass,
    TokenEndpoint,
    TokenFile,
)

__all__ = [
    "AssertionFile",
    "AwsIam",
    "ClientCredentials",
    "OAuthLogin",
    "SignedAssertion",
    "TokenClass",
    "TokenEndpoint",
    "TokenFile",
]
