"""A Kerberos realm on loopback: a KDC of MIT krb5 with a database of its own, and Kafka's settings for it."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from unittest import mock

from rig.ports import free_port
from rig.process import spawn, tail
from rig.wait import wait_until

__all__ = ["PROGRAMS", "REALM", "SERVICE", "KerberosRealm", "in_realm", "krb5_login", "program"]

REALM = "RIG.EXAMPLE"

SERVICE = "kafka/localhost"
"""The principal of all brokers: they advertise 127.0.0.1, which Java takes for ``localhost``."""

_MODULE = "com.sun.security.auth.module.Krb5LoginModule"

#: Debian puts the KDC's programs where only root has them on the PATH.
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])

PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")


def program(name: str) -> str:
    """Return the path of a program of krb5, or its name if it is not installed."""
    return shutil.which(name, path=_PATH) or name


def krb5_login(**options: str) -> str:
    """Return a ``sasl.jaas.config`` with these options of Krb5LoginModule."""
    given = " ".join(f'{name}="{value}"' for name, value in options.items())
    return f"{_MODULE} required {given};"


@dataclass
class KerberosRealm:
    """A realm, running inside a ``with`` block.

    Attributes:
        shift: How far the KDC's clock is from the real one, as ``faketime`` takes it, such as ``+1h``.
    """

    shift: str | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def __enter__(self) -> Self:
        self._scratch = tempfile.TemporaryDirectory(prefix="rig-kerberos-")
        self.directory = Path(self._scratch.name)
        self._port = free_port()
        self.config = self.directory / "krb5.conf"
        self.config.write_text(self._client_config())
        (self.directory / "kdc.conf").write_text(self._kdc_config())
        self._run("kdb5_util", "-r", REALM, "create", "-s", "-P", "the master key of a test")
        self.broker_keytab = self.add(SERVICE)
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()
        self._scratch.cleanup()

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of programs in this realm."""
        return {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf")}

    def start(self) -> None:
        """Start the KDC, and wait until it accepts connections."""
        fake = ["faketime", "-f", self.shift] if self.shift else []
        log = self.directory / "kdc.log"
        arguments = [*fake, program("krb5kdc"), "-n", "-P", str(self.directory / "kdc.pid")]
        self._process = spawn(arguments, log, self.environment)

        def accepts() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, tail(log)
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return True
            return False

        wait_until(accepts, "the KDC")

    def stop(self) -> None:
        """Stop the KDC; its database stays."""
        if self._process is not None:
            # faketime starts it as a child in the same session.
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait()
            self._process = None

    def add(self, principal: str, *options: str) -> Path:
        """Add a principal, with further options of ``addprinc``, and return its keytab."""
        self._administer(f"addprinc -randkey +requires_preauth {' '.join(options)} {principal}")
        return self.keytab(principal)

    def requests(self, principal: str) -> int:
        """Return how many tickets the KDC has given to a principal for its password or key."""
        lines = (self.directory / "log").read_text().splitlines()
        return sum(
            "AS_REQ" in line and "ISSUE" in line and f" {principal}@{REALM} for" in line for line in lines
        )

    def keytab(self, principal: str) -> Path:
        """Export the keys of a principal to a new file."""
        path = self.directory / f"{principal.replace('/', '-')}.keytab"
        path.unlink(missing_ok=True)
        self._administer(f"ktadd -k {path} -norandkey {principal}")
        return path

    def change_key(self, principal: str) -> None:
        """Give a principal a new key; its keytabs have the old one."""
        self._administer(f"cpw -randkey {principal}")

    def remove(self, principal: str) -> None:
        """Remove a principal from the database."""
        self._administer(f"delprinc -force {principal}")

    def kinit(self, principal: str, cache: Path, *options: str) -> None:
        """Get a ticket into a file, with further options of ``kinit``."""
        keytab = self.directory / f"{principal.replace('/', '-')}.keytab"
        self._run("kinit", "-k", "-t", str(keytab), "-c", str(cache), *options, principal)

    def broker_config(self, *listeners: str) -> dict[str, object]:
        """Return the settings of brokers whose listeners of these names take GSSAPI alone."""
        keytab = str(self.broker_keytab)
        login = krb5_login(useKeyTab="true", storeKey="true", keyTab=keytab, principal=f"{SERVICE}@{REALM}")
        config: dict[str, object] = {"sasl.kerberos.service.name": SERVICE.partition("/")[0]}
        for name in map(str.lower, listeners):
            config[f"listener.name.{name}.sasl.enabled.mechanisms"] = "GSSAPI"
            config[f"listener.name.{name}.gssapi.sasl.jaas.config"] = login
        return config

    @property
    def jvm_option(self) -> str:
        """The option of a broker's JVM that names the realm's KDC."""
        return f"-Djava.security.krb5.conf={self.config}"

    def _administer(self, command: str) -> None:
        self._run("kadmin.local", "-r", REALM, "-q", command)

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [program(name), *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        # kadmin.local ends with status 0 also if a command failed.
        failures = [line for line in done.stderr.splitlines() if line.startswith((name, "add_", "delete_"))]
        if done.returncode or failures:
            raise RuntimeError(f"{name} {' '.join(arguments)}: {done.stderr}")

    def _client_config(self) -> str:
        return f"""[libdefaults]
 default_realm = {REALM}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 udp_preference_limit = 1
 kdc_timesync = 0
[realms]
 {REALM} = {{
  kdc = 127.0.0.1:{self._port}
 }}
"""

    def _kdc_config(self) -> str:
        return f"""[kdcdefaults]
 kdc_listen = 127.0.0.1:{self._port}
 kdc_tcp_listen = 127.0.0.1:{self._port}
[realms]
 {REALM} = {{
  database_name = {self.directory}/principal
  key_stash_file = {self.directory}/stash
  acl_file = {self.directory}/acl
  max_life = 10h
  max_renewable_life = 7d
 }}
[logging]
 default = FILE:{self.directory}/log
"""


def in_realm(realm: KerberosRealm) -> contextlib.AbstractContextManager[object]:
    """Let this process and its children use a realm inside a ``with`` block."""
    return mock.patch.dict(os.environ, realm.environment)
