"""
Signed reports: the JSON of a verification with an Ed25519 signature (docs/verify-certificate.md).

The signature covers the report as JSON with sorted names, without spaces and in ASCII. So the
signature holds if a program formats the file in another way.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, OptionError
from ..exit_codes import EXIT_DONE
from ..mirroring.model.json_values import typed
from ..printable import printable
from .report import Outcome

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = ["CheckedReport", "Signer", "certified_exit_code", "certified_lines", "check_certificate"]

_ALGORITHM = "Ed25519"

#: The name of the signature in the file.
_SIGNATURE = "signature"

_MAKE_ONE = "Make one with: openssl genpkey -algorithm ed25519 -out key.pem"


class Signer:
    """A private key that signs reports."""

    def __init__(self, option: str, file: str) -> None:
        """
        Read the key.

        Args:
            option: The field of the option that names the file.
            file: The private key in PEM, not encrypted.

        Raises:
            OptionError: The file cannot be read, or has no such key.

        """
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        content = _read(option, file)
        try:
            key = load_pem_private_key(content, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise OptionError(
                "{option} {file!r}: not an Ed25519 private key in PEM without a password. {remedy}",
                option=option,
                file=file,
                remedy=_MAKE_ONE,
            )
        self._key: Ed25519PrivateKey = key

    def signed(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """Return a report with its signature."""
        signature = {
            "algorithm": _ALGORITHM,
            "public_key": _base64(self._key.public_key().public_bytes_raw()),
            "value": _base64(self._key.sign(_signed_bytes(report))),
        }
        return {**report, _SIGNATURE: signature}


@dataclass(frozen=True, slots=True)
class CheckedReport:
    """
    A report whose signature holds.

    Attributes:
        report: The report, as :meth:`VerifyReport.to_json_object
            <shoal.verify.report.VerifyReport.to_json_object>` made it.
        key: The fingerprint of the signer's public key: ``SHA256:`` and its digest in base64.

    """

    report: Mapping[str, Any]
    key: str


def check_certificate(file: str, signer: str | None) -> CheckedReport | None:
    """
    Check the signature of a file.

    Args:
        file: The certificate.
        signer: The file of the public key (PEM) that must have signed it; None accepts any key.

    Returns:
        None if the signature is not of this content, or by another key.

    Raises:
        ConfigError: A file cannot be read, or is no certificate.

    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    content = _json_of(file)
    try:
        signature = typed(dict, content.pop(_SIGNATURE))
        if (typed(str, content["type"]), signature["algorithm"]) != ("verify", _ALGORITHM):
            raise ValueError("it is not a report of shoal verify with an Ed25519 signature")
        public = base64.b64decode(typed(str, signature["public_key"]), validate=True)
        value = base64.b64decode(typed(str, signature["value"]), validate=True)
        key = Ed25519PublicKey.from_public_bytes(public)
    except KeyError as error:
        raise _no_certificate(file, f"{error} is missing") from None
    except (ValueError, TypeError, binascii.Error) as error:
        raise _no_certificate(file, str(error)) from None
    if signer is not None and _public_key("signer", signer).public_bytes_raw() != public:
        return None
    try:
        key.verify(value, _signed_bytes(content))
    except InvalidSignature:
        return None
    digest = base64.b64encode(hashlib.sha256(public).digest()).decode().rstrip("=")
    return CheckedReport(content, f"SHA256:{digest}")


def certified_exit_code(report: Mapping[str, Any]) -> int:
    """
    Return the exit code of a certified comparison.

    Raises:
        ConfigError: The report has no outcome that this version knows.

    """
    try:
        outcome = _certified_outcome(report)
        is_empty = report["outcome"] == Outcome.NOTHING.value and report.get("exit_code") == EXIT_DONE
        return EXIT_DONE if is_empty else outcome.exit_code
    except (KeyError, ValueError):
        raise ConfigError(
            f"the certificate has the outcome {report.get('outcome')!r}, which this version of shoal does "
            "not know. Use a later one"
        ) from None


def certified_lines(checked: CheckedReport) -> Iterator[str]:
    """Yield what a certificate says, as lines."""
    report = checked.report
    source, destination = (_servers(report.get(side)) for side in ("source", "destination"))
    yield printable(f"signed by {checked.key}")
    yield printable(f"compared at {report.get('at')}: {source} with {destination}")
    extent = report.get("extent")
    only = f", only {extent}" if extent else ""
    yield printable(f"{_certified_outcome(report).value}: {report.get('records')} records are the same{only}")


def _certified_outcome(report: Mapping[str, Any]) -> Outcome:
    """Return the outcome; an older version called a comparison of no record equal."""
    outcome = Outcome(report["outcome"])
    return Outcome.NOTHING if outcome is Outcome.EQUAL and not report.get("records") else outcome


def _servers(cluster: object) -> str:
    return str(cluster.get("servers")) if isinstance(cluster, Mapping) else "?"


def _json_of(file: str) -> dict[str, Any]:
    """
    Read the JSON object of a file.

    Raises:
        ConfigError: The file cannot be read, or has no such object.

    """
    try:
        return dict(typed(dict, json.loads(_read("check", file), object_pairs_hook=_without_doubles)))
    except (ValueError, TypeError, RecursionError) as error:
        raise _no_certificate(file, str(error)) from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a name that an object has twice: the signature covers one of its values, and people see both."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has {next(each for each in found if names.count(each) > 1)!r} twice")
    return found


def _public_key(option: str, file: str) -> Ed25519PublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    content = _read(option, file)
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise OptionError(
            "{option} {file!r}: not an Ed25519 public key in PEM. Write it with: "
            "openssl pkey -in key.pem -pubout",
            option=option,
            file=file,
        )
    return key


def _read(option: str, file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise OptionError(
            "{option} {file!r}: {error}", option=option, file=file, error=error.strerror
        ) from None


def _no_certificate(file: str, why: str) -> ConfigError:
    return ConfigError(f"the file {file!r} is not a signed report of shoal verify: {why}")


def _signed_bytes(report: Mapping[str, Any]) -> bytes:
    return json.dumps(report, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
