"""
The secrets of both clusters, on their way from the driver to its tasks.

Spark shows what it is given: options of a data source stand in plans and logs. So the tasks get
the secrets over the control connection, sealed (Fernet: AES-128 and HMAC) by a key of this process that
travels apart: in the pickled class of the data source, which Spark hands on and never shows.
Who reads the control connection, or has its token, has a sealed letter.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..client.config import ClientConfig
from ..client.security import Security
from ..errors import Stopped

__all__ = ["PROCESS_KEY", "Credentials"]

#: One a process, so that whatever data source it registers with Spark opens the letters of all its mirrors.
PROCESS_KEY = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


@dataclass(frozen=True, slots=True)
class Credentials:
    """What it takes to be let in by each cluster, by ``source`` and ``destination``."""

    by_cluster: Mapping[str, Security] = field(repr=False)

    @classmethod
    def of(cls, *configs: ClientConfig) -> Credentials:
        return cls({config.name: config.security for config in configs if config.security})

    def __bool__(self) -> bool:
        return bool(self.by_cluster)

    def seal(self, key: str) -> str:
        """Return them for the wire."""
        # Here and below, since only locked clusters need it.
        from cryptography.fernet import Fernet

        fields = {name: security.to_json() for name, security in self.by_cluster.items()}
        return Fernet(key.encode()).encrypt(json.dumps(fields).encode()).decode()

    @classmethod
    def unseal(cls, letter: str, key: str) -> Credentials:
        """
        Open what :meth:`seal` made.

        Raises:
            Stopped: It was sealed by another process: this task's driver is gone.

        """
        from cryptography.fernet import Fernet, InvalidToken

        try:
            fields = json.loads(Fernet(key.encode()).decrypt(letter.encode()))
        except (InvalidToken, ValueError) as error:
            raise Stopped("the credentials that the driver sent are not for this task") from error
        return cls({name: Security.from_json(security) for name, security in fields.items()})
