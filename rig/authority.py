"""A certificate authority for tests: certificates for brokers and clients, as PEM, PKCS12 and JKS."""

import datetime
import ipaddress
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

__all__ = ["Authority", "Identity", "tls_listener"]

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key, with its certificate and the authority's certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    issuer: x509.Certificate

    @property
    def chain_pem(self) -> str:
        return _pem(self.certificate) + _pem(self.issuer)

    def key_pem(self, password: str | None = None) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, _encryption(password)).decode()

    def write_pkcs12(self, path: Path, password: str) -> Path:
        """Write a key store as keytool would."""
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"key", self.key, self.certificate, [self.issuer], _encryption(password)
            )
        )
        return path

    def write_pem(self, path: Path, password: str | None = None) -> Path:
        """Write a key store of type PEM: the key, then its certificates."""
        path.write_text(self.key_pem(password) + self.chain_pem)
        return path


class Authority:
    """Sign certificates; each test run creates a new authority."""

    def __init__(self, name: str = "rig authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = (
            self._builder(self._name, self._key.public_key(), _now() + 60 * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        return _pem(self.certificate)

    def issue(
        self,
        common_name: str,
        *hosts: str,
        expired: bool = False,
        days: int = 1,
        subject: x509.Name | None = None,
    ) -> Identity:
        """Return a key and a certificate for hosts (names and addresses); ``subject`` replaces the name."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = subject or x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        builder = self._builder(name, key.public_key(), _now() + (-_DAY if expired else days * _DAY))
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(map(_general_name, hosts)), False)
        return Identity(key, builder.sign(self._key, hashes.SHA256()), self.certificate)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, until: datetime.datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_now() - 3 * _DAY)
            .not_valid_after(until)
        )

    def write_trust_store(self, path: Path, password: str, kind: str = "PKCS12") -> Path:
        """Write a trust store of type PKCS12 or JKS with Java's own keytool."""
        certificate = path.with_suffix(".ca.pem")
        certificate.write_text(self.pem)
        subprocess.run(
            [
                *("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", str(certificate)),
                *("-keystore", str(path), "-storepass", password, "-storetype", kind),
            ],
            check=True,
            capture_output=True,
        )
        return path


def tls_listener(name: str, own: Path, authority: Path) -> dict[str, object]:
    """Return a broker's settings for a listener with TLS.

    Args:
        name: The listener's name, in any case.
        own: The broker's key and certificates, as `Identity.write_pem` writes them.
        authority: The authority's certificate as PEM.
    """
    prefix = f"listener.name.{name.lower()}"
    return {
        f"{prefix}.ssl.keystore.type": "PEM",
        f"{prefix}.ssl.keystore.location": own,
        f"{prefix}.ssl.truststore.type": "PEM",
        f"{prefix}.ssl.truststore.location": authority,
    }


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _encryption(password: str | None) -> KeySerializationEncryption:
    return BestAvailableEncryption(password.encode()) if password else NoEncryption()
