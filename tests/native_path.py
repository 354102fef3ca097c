"""The native path and Python's, for tests that run the same cases on both."""

import os

import pytest

from shoal.client import produce
from shoal.native import NATIVE

__all__ = ["PATHS", "SENDERS", "needs_native", "send_by"]

#: In CI the native module may not be missing: the tests fail then.
needs_native = pytest.mark.skipif(
    NATIVE is None and not os.environ.get("CI"), reason="shoal-native is not installed: make native builds it"
)

#: The values of a parametrized ``path``: whether it is the native one.
PATHS = [pytest.param(False, id="python"), pytest.param(True, id="native", marks=needs_native)]

#: The ways in which a mirror sends: both pumps, and one request after the other where no pump can be used.
SENDERS = [
    pytest.param("native", marks=needs_native),
    "python",
    "requests",
]


def send_by(sender: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send in one of these ways."""
    monkeypatch.setattr(produce, "NATIVE", NATIVE if sender == "native" else None)
    if sender == "requests":
        monkeypatch.setattr(produce.ProduceConnection, "pump", lambda self, *args, **options: None)
