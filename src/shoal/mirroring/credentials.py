"""
The secrets of both clusters, on their way from the driver to its tasks.

Spark serves its pickled tasks to every process of an application. So the tasks get the secrets over
the control connection, sealed (Fernet: AES-128 and HMAC) by a key of this process that
travels apart: in a file for tasks on this machine, else in the pickled task.
A process that reads the control connection, or has its token, has only the sealed credentials.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..client.config import ClientConfig
from ..client.security import Security
from ..errors import ConfigError, Stopped
from ..json_values import read_value, to_json

__all__ = ["PROCESS_KEY", "Credentials", "key_in_file"]

_KEY_FILE = "key-of-tasks"

#: One a process: whatever data source it registers with Spark unseals the credentials of all its mirrors.
PROCESS_KEY = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


@dataclass(frozen=True, slots=True)
class Credentials:
    """The security settings of each cluster, by ``source`` and ``destination``."""

    by_cluster: Mapping[str, Security] = field(repr=False)

    @classmethod
    def of(cls, *configs: ClientConfig) -> Credentials:
        """Return the credentials of those clusters that need any."""
        return cls({config.name: config.security for config in configs if config.security})

    def __bool__(self) -> bool:
        return bool(self.by_cluster)

    def into(self, config: ClientConfig) -> ClientConfig:
        """Return how to reach a cluster with its credentials, and with no others."""
        keeper = config.keeper and self.into(config.keeper)
        return replace(config, security=self.by_cluster.get(config.name), keeper=keeper)

    def seal(self, key: str) -> str:
        """Return them for the wire."""
        # Here and below, since only locked clusters need it.
        from cryptography.fernet import Fernet

        text = json.dumps(to_json(self.by_cluster))
        return Fernet(key.encode()).encrypt(text.encode()).decode()

    @classmethod
    def unseal(cls, sealed: str, key: str | Path) -> Credentials:
        """
        Open what :meth:`seal` made, with the key or with the file that has it.

        Raises:
            Stopped: Another process sealed it, or deleted the key: this task's driver has ended.

        """
        from cryptography.fernet import Fernet, InvalidToken

        try:
            if isinstance(key, Path):
                key = key.read_text(encoding="ascii")
            fields = json.loads(Fernet(key.encode()).decrypt(sealed.encode()))
        except (InvalidToken, ValueError, OSError) as error:
            raise Stopped("the credentials that the driver sent are not for this task") from error
        # The driver was let in by both clusters before it started the first task.
        return cls(
            {name: replace(read_value(Security, each), has_worked=True) for name, each in fields.items()}
        )


@contextlib.contextmanager
def key_in_file(directory: Path) -> Iterator[Path]:
    """
    Write the key of this process to a file that only this user can read; delete the file at the end.

    Args:
        directory: A directory that no other process uses at the time, such as a mirror's checkpoint.

    Raises:
        ConfigError: The file cannot be written.

    """
    file = directory.resolve() / _KEY_FILE
    try:
        file.unlink(missing_ok=True)  # a killed process left it
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(PROCESS_KEY)
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be written: {error.strerror}. Set another directory by --checkpoint"
        ) from error
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)
