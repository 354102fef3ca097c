"""The report of a run: the page with its final object inside."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from ....errors import OptionError, ShoalError
from .data import Ending, PageData
from .html import html
from .observer import Observer

__all__ = ["check_report", "write_report"]


def check_report(file: str) -> None:
    """
    Check before a run if its report can be written, without a change to an existing file.

    Raises:
        OptionError: The report cannot be written.

    """
    path = Path(file).resolve()
    if path.exists() and not path.is_file():
        raise OptionError("{report} {file}: not a file", file=file)
    try:
        # The report replaces an existing file, so the directory must be writable.
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OptionError("{report} {file}: {error}", file=file, error=error.strerror) from None


def write_report(file: str, observer: Observer, ending: Ending) -> None:
    """
    Write the report of a mirror that has ended, in one step.

    Raises:
        ShoalError: The report cannot be written.

    """
    path = Path(file).resolve()
    page = html(PageData(observer).at_the_end(ending))
    # An unpredictable name: in a shared directory another user could have put a link at a predictable one.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        try:
            # Not by mkstemp, since the user's umask determines the mode of the report.
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(page)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ShoalError(f"the report {file} cannot be written: {error.strerror}") from error
