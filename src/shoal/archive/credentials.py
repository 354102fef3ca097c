"""
The credentials of an object store, by properties of the file of an end.

The properties have names of their own, since Kafka's clients have none for stores. Without them pyarrow takes
the credentials of the environment, or of the machine's role.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import ConfigError

__all__ = ["STORE_PROPERTIES", "StoreCredentials", "read_credentials"]


@dataclass(frozen=True, slots=True)
class StoreCredentials:
    """
    The secrets of one store; the ``repr()`` contains none.

    Attributes:
        arguments: The secrets by the names of pyarrow's arguments.

    """

    arguments: tuple[tuple[str, str], ...] = field(default=(), repr=False)


#: The names of pyarrow's arguments by their properties, which begin with the scheme of the store's URL.
_ARGUMENTS: Mapping[str, str] = {
    "s3.access.key": "access_key",
    "s3.secret.key": "secret_key",
    "s3.session.token": "session_token",
    "abfss.account.key": "account_key",
    "abfss.sas.token": "sas_token",
}

STORE_PROPERTIES = frozenset(_ARGUMENTS)

_S3_KEYS = ("s3.access.key", "s3.secret.key")
_ABFSS = ("abfss.account.key", "abfss.sas.token")


def read_credentials(properties: Mapping[str, str], url: str, where: str) -> StoreCredentials | None:
    """
    Read the credentials of a directory's store; None without any.

    Args:
        properties: All properties of the end.
        url: The URL or path of the directory.
        where: Their source for errors, which never contain a value.

    Raises:
        ConfigError: One is missing, or is that of another kind of store.

    """
    found = {key: properties[key].strip() for key in _ARGUMENTS if properties.get(key, "").strip()}
    if not found:
        return None
    scheme = url.partition("://")[0].lower()
    for key in found:
        if key.partition(".")[0] != scheme:
            raise ConfigError(f"{where}: {key} is not for a directory such as {scheme}://…. Remove it")
    if scheme == "s3" and not all(key in found for key in _S3_KEYS):
        raise ConfigError(f"{where}: {' and '.join(_S3_KEYS)} belong together. Set both")
    if all(key in found for key in _ABFSS):
        raise ConfigError(f"{where}: {' and '.join(_ABFSS)} exclude each other. Set one of them")
    return StoreCredentials(tuple((_ARGUMENTS[key], value) for key, value in found.items()))
