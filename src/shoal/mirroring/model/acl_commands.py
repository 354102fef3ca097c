"""The commands that grant a mirror its ACLs."""

from __future__ import annotations

from collections.abc import Iterable

from .acl_prefixes import by_prefix, prefixes_of
from .acls import Acl, acl_commands
from .options import MirrorOptions

__all__ = ["commands_of"]


def commands_of(
    acls: Iterable[Acl], options: MirrorOptions, *, is_own: bool = False, creates: bool | None = None
) -> list[str]:
    """
    Return the commands that grant a mirror its ACLs, by prefix if an expression selects its topics.

    Args:
        acls: The ACLs by names.
        options: The options of the mirror.
        is_own: Whether to name the principals by which this process logs in.
        creates: Whether later topics are created; by default if the mirror runs on.

    """
    sides = options.source, options.destination
    creates = not options.once if creates is None else creates
    return acl_commands(
        by_prefix(acls, prefixes_of(options.topics), creates=creates),
        {each.name: each.servers for each in sides},
        [each.name for each in sides if each.security is not None],
        {each.name: each.principal for each in sides} if is_own else {},
    )
