"""The file in a mirror's directory that keeps what an operator has set, over restarts of the mirror."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from ...errors import ConfigError, OptionError
from ..model.steering_options import NOTHING_SET, SetSteering

__all__ = ["SteeringFile"]

_NAME = "steering.json"

#: A thousand expressions of a thousand characters, and some.
_LARGEST_BYTES = 4 * 1024 * 1024


class SteeringFile:
    """
    The file.

    Attributes:
        path: Its path.

    """

    def __init__(self, directory: Path) -> None:
        """Name the file in the mirror's directory."""
        self.path = directory / _NAME

    def read(self) -> SetSteering:
        """
        Return what was set.

        Raises:
            ConfigError: The file cannot be read. Without it, a paused topic would be copied.

        """
        try:
            with self.path.open("rb") as file:
                text = file.read(_LARGEST_BYTES + 1)
            if len(text) > _LARGEST_BYTES:
                raise ValueError(f"it has more than {_LARGEST_BYTES} bytes")
            return SetSteering.from_json_object(json.loads(text))
        except FileNotFoundError:
            return NOTHING_SET
        except (
            OSError,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
            OptionError,
        ) as error:
            raise ConfigError(
                f"{self.path}, which keeps what was set on the control socket, cannot be read: {error}. "
                "Remove it to start with the options alone"
            ) from error

    def write(self, setting: SetSteering) -> None:
        """
        Replace the file, or remove it if nothing is set.

        Raises:
            OSError: The file cannot be written.

        """
        values = setting.to_json_object()
        if not values:
            self.path.unlink(missing_ok=True)
            return
        # A file of mode 0600, which takes the place of the old one as a whole.
        number, name = tempfile.mkstemp(prefix=f".{_NAME}.", dir=self.path.parent)
        try:
            with os.fdopen(number, "w") as file:
                json.dump(values, file)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self.path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
