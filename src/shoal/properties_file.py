"""Java ``.properties`` files, as Kafka's own tools read them."""

from __future__ import annotations

from pathlib import Path

import javaproperties

from .errors import ConfigError

__all__ = ["read_properties_file"]


def read_properties_file(option: str, file: str) -> dict[str, str]:
    """
    Return the properties in a file.

    Args:
        option: The option that names the file, for errors.

    Raises:
        ConfigError: The file cannot be read.

    """
    try:
        with Path(file).open("rb") as stream:
            return dict(javaproperties.load(stream))
    except OSError as error:
        raise ConfigError(f"{option} {file}: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"{option} {file}: not a properties file: {error}") from None
