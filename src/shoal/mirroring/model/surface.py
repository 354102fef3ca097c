"""The spelling of options in sentences that tasks write: as the command line, Python or Spark takes them."""

from __future__ import annotations

import enum

from ...client.config import ClientConfig
from .incidents import IncidentKind

__all__ = ["Surface"]


class Surface(enum.Enum):
    """Where the user of a mirror gave its options."""

    SHELL = "shell"
    PYTHON = "python"
    SPARK = "spark"

    def option(self, field: str) -> str:
        """Return an option by its field's name, as ``--sync-configs`` or ``option syncConfigs``."""
        match self:
            case Surface.SHELL:
                return f"--{field.replace('_', '-')}"
            case Surface.PYTHON:
                return f"option {field}"
        first, *rest = field.split("_")
        return f"option {first}{''.join(map(str.capitalize, rest))}"

    def continuing(self, kind: IncidentKind) -> str:
        """Return the option that lets a partition continue after a kind of incident."""
        if self is Surface.PYTHON:
            return f"continue_after={[kind.policy.value]}"
        separator = " " if self is Surface.SHELL else "="
        return f"{self.option('continue_after')}{separator}{kind.policy.value}"

    def principal(self, config: ClientConfig) -> str:
        """Return the principal of a client of the source or the destination, or whose login names it."""
        if config.principal is not None:
            return config.principal
        if self is Surface.SHELL and config.security is not None:
            field = "from_config" if config.name == "source" else "to_config"
            return f"the principal of {self.option(field)}"
        return "the principal of this mirror"
