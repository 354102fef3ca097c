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
from ...result_file import write_result_file
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
    trial = f"{certificate}.{secrets.token_hex(8)}"
    try:
        _write("certificate", trial, "")  # not every file system has the links that this needs
    except ShoalError as error:
        reason = error.__cause__.strerror if isinstance(error.__cause__, OSError) else error
        raise ConfigError(f"--certificate {certificate!r}: {reason}") from None
    Path(trial).unlink()


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
    write_result_file(kind, file, text, mode=0o600, replaces=False)
