"""Java ``.properties`` files, as Kafka's own tools read them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import javaproperties

from .errors import ConfigError
from .secret_file import open_mode

__all__ = ["read_properties_file"]

#: Properties whose values are secret. A truststore has certificates alone, whatever its password.
_SECRET_PROPERTY = re.compile(r".*(?<!truststore)\.(password|secret|passphrase)|.*ssl\.keystore\.key")

#: The options of a login in ``sasl.jaas.config`` whose values are secret.
_SECRET_OPTION = re.compile(r"(?<!truststore\.)(password|secret|passphrase)\s*=", re.IGNORECASE)


def read_properties_file(option: str, file: str) -> dict[str, str]:
    """
    Return the properties in a file.

    Args:
        option: The option that names the file, for errors.

    Raises:
        ConfigError: The file cannot be read, or it holds a secret that other users can read.

    """
    try:
        with Path(file).open("rb") as stream:
            mode = open_mode(os.fstat(stream.fileno()))
            properties = dict(javaproperties.load(stream))
    except OSError as error:
        raise ConfigError(f"{option} {file}: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"{option} {file}: not a properties file: {error}") from None
    secret = _secret_in(properties)
    if mode and secret:
        raise ConfigError(
            f"{option} {file}: mode {mode} allows other users to read the value of {secret}, or to replace "
            f"it. Run: chmod 600 {file}"
        )
    return properties


def _secret_in(properties: Mapping[str, str]) -> str | None:
    """Return the name of a property with a password or a key; None if there is none."""
    for name, value in properties.items():
        if _SECRET_PROPERTY.fullmatch(name):
            return name
        if name.endswith("sasl.jaas.config") and _SECRET_OPTION.search(value):
            return name
    return None
