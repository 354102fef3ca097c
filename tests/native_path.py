"""The native path and Python's, for tests that run the same cases on both."""

import os

import pytest

from shoal.client import send
from shoal.native import NATIVE

__all__ = ["PATHS", "SENDERS", "needs_native", "send_by"]

#: In CI the native module may not be missing: the tests fail then.
needs_native = pytest.mark.skipif(
    NATIVE is None and not os.environ.get("CI"), reason="there is no native module: make native compiles it"
)

#: The values of a parametrized ``path``: whether it is the native one.
PATHS = [pytest.param(False, id="python"), pytest.param(True, id="native", marks=needs_native)]

#: The senders of a mirror.
SENDERS = [pytest.param("native", marks=needs_native), "python"]


def send_by(sender: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send by one of them."""
    monkeypatch.setattr(send, "NATIVE", NATIVE if sender == "native" else None)
