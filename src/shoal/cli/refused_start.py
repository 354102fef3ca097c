"""A start that a cluster refuses because of a missing ACL: how to see the commands that grant it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..errors import BrokerError, ConfigError, lacks_acl
from ..mirroring.model.acls import principal_of
from ..mirroring.model.options import MirrorOptions

__all__ = ["pointing_to_commands"]


@contextlib.contextmanager
def pointing_to_commands(options: MirrorOptions) -> Iterator[None]:
    """
    Add to an error of a missing ACL that a dry run prints the commands, inside a ``with`` block.

    Raises:
        ConfigError: A cluster refuses the principal. A retry without the ACL is of no use.

    """
    try:
        yield
    except (ConfigError, BrokerError) as error:
        if not lacks_acl(error):
            raise
        raise ConfigError(
            f"{error}. Run the same command with --dry-run: it prints the "
            f"kafka-acls.sh commands that grant {_principals(options)} the missing rights"
        ) from error


def _principals(options: MirrorOptions) -> str:
    found = map(principal_of, (options.source, options.destination))
    return " and ".join(dict.fromkeys(found))
