"""
The choice between the native module and Python, made once for each process.

``shoal-native`` (the directory ``native``, Rust) has the innermost loops once more,
without the interpreter's lock. Python's versions are the reference: the tests run
both over the same cases. shoal takes the native module if Python can import it,
unless ``SHOAL_PURE_PYTHON=1`` is set.
"""

from __future__ import annotations

import importlib
import os
import warnings
from typing import Protocol, cast

__all__ = ["NATIVE", "Native"]

#: The version of the signatures below; a module with another one is not used.
_INTERFACE = 1


class Native(Protocol):
    """The functions of ``shoal_native``; each names its reference in Python."""

    def stamp_plain(
        self,
        record_set: memoryview,
        position: int,
        *,
        first_offset: int,
        end_offset: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
    ) -> tuple[int, int, int, bytes]:
        """See :func:`shoal.records.stamp_plain`."""


def _load() -> Native | None:
    if os.environ.get("SHOAL_PURE_PYTHON") == "1":
        return None
    try:
        module = importlib.import_module("shoal_native")
    except ModuleNotFoundError:
        return None
    except ImportError as error:
        warnings.warn(f"shoal-native cannot be loaded, so shoal uses Python: {error}", stacklevel=2)
        return None
    if getattr(module, "INTERFACE", None) != _INTERFACE:
        warnings.warn(
            f"shoal-native {module.__version__} is not for this shoal, which uses Python instead; "
            "install 'shoal[native]' again",
            stacklevel=2,
        )
        return None
    return cast(Native, module)


#: The native module; None if shoal uses Python.
NATIVE = _load()
