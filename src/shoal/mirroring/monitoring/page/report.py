"""The report of a run: the page, with what it showed at the end written into it."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from ....errors import ConfigError, ShoalError
from .data import Ending, PageData
from .html import html
from .observer import Observer

__all__ = ["check_report", "write_report"]


def check_report(file: str) -> None:
    """
    Find out before a run whether its report can be written; whatever is there stays as it is.

    Raises:
        ConfigError: It cannot.

    """
    path = Path(file).resolve()
    if path.exists() and not path.is_file():
        raise ConfigError(f"--report {file}: not a file")
    try:
        # It takes the place of what is there, so the directory is what has to allow it.
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ConfigError(f"--report {file}: {error.strerror}") from None


def write_report(file: str, observer: Observer, ending: Ending) -> None:
    """
    Write the report of a mirror that has ended, in one step.

    Raises:
        ShoalError: It cannot be written.

    """
    path = Path(file).resolve()
    page = html(PageData(observer).at_the_end(ending))
    # An unpredictable name: in a shared directory another user could have put a link at a predictable one.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        try:
            # Not by mkstemp: the report is readable as the user's umask says.
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(page)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ShoalError(f"the report {file} cannot be written: {error.strerror}") from error
