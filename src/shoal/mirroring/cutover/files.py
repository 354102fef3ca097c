"""
The files of a cut-over: the certificate and, beside it, its page.

Each is written in one step and never over another file: an earlier certificate is still needed for its way
back. Only this user may read them, since they name topics, hosts and groups.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from ...errors import ConfigError, ShoalError
from .certificate import Certificate
from .certificate_page import certificate_html

__all__ = ["check_writable", "page_file", "write_certificate", "write_page"]


def page_file(certificate: str) -> str:
    """Return the file of a certificate's page: ``orders.html`` beside ``orders.json``."""
    return f"{certificate.removesuffix('.json')}.html"


def check_writable(certificate: str) -> None:
    """
    Make sure, before a cut-over begins, that its certificate and its page can be written.

    Raises:
        ConfigError: One of the files exists, or the directory does not accept new files.

    """
    for file in (certificate, page_file(certificate)):
        if os.path.lexists(file):
            raise ConfigError(
                f"--certificate {certificate!r}: file {file!r} exists, and is never replaced. Name a new one"
            )
    try:
        temporary = _write_temporary(Path(certificate), b"")
        linked = temporary.with_name(f"{temporary.name}.link")
        try:
            os.link(temporary, linked)  # not every file system has links
        finally:
            temporary.unlink(missing_ok=True)
            linked.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"--certificate {certificate!r}: {error.strerror}") from None


def write_certificate(file: str, certificate: Certificate) -> None:
    """
    Write a certificate.

    Raises:
        ShoalError: The file exists, or cannot be written.

    """
    text = json.dumps(certificate.to_json_object(), indent=2)
    _write("certificate", file, f"{text}\n")


def write_page(certificate_file: str, certificate: Certificate) -> None:
    """
    Write the page of a certificate beside it.

    Raises:
        ShoalError: The file exists, or cannot be written.

    """
    page = certificate_html(certificate, Path(certificate_file).name)
    _write("page of the certificate", page_file(certificate_file), page)


def _write(kind: str, file: str, text: str) -> None:
    path = Path(file)
    try:
        temporary = _write_temporary(path, text.encode())
        try:
            # A link, unlike a rename, does not replace a file that was made meanwhile.
            os.link(temporary, path, follow_symlinks=False)
            _flush_directory(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ShoalError(f"the {kind} {file!r} cannot be written: {error.strerror}") from error


def _write_temporary(path: Path, content: bytes) -> Path:
    """Write a file of an unpredictable name beside the path, and return its path."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
