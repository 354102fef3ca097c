"""
The topic configurations in which copies differ from their sources. The module sends no requests.

A copy has the values that are set on its source topic. Four values decide how long records stay and which
batches are taken (:data:`~shoal.mirroring.prepare.topic_configs.COPIED_ALWAYS`): of these a copy has what is
in force at the source, be it set there or a broker's default. A value that is set on the copy alone returns
to the destination's default.

``--sync-configs-exclude`` names the values that stay: the destination's own policy decides about them.
``compression.type`` always stays: any value but ``producer`` makes the destination's brokers recompress.
So does a value whose counterpart at the source would make the copy unwritable
(:func:`~shoal.mirroring.prepare.topic_configs.harmful_values`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...client.admin import ConfigEntry
from ..prepare.topic_configs import COPIED_ALWAYS, harmful_values

__all__ = ["config_drift"]

_NEVER = re.compile(r"compression\..*")

Configs = Mapping[str, ConfigEntry]


def config_drift(source: Configs, destination: Configs, exclude: re.Pattern[str]) -> dict[str, str | None]:
    """
    Return what to change at the destination, so that a copy has its source's configuration.

    Args:
        source: The topic's configurations, with the defaults.
        destination: Those of the copy. A name that its brokers do not have is left out.
        exclude: The names that stay as they are.

    Returns:
        The new values by name, sorted; None for the destination's default.

    """
    changes: dict[str, str | None] = {}
    harmful = harmful_values(source)
    for name, present in sorted(destination.items()):
        if exclude.fullmatch(name) or _NEVER.fullmatch(name):
            continue
        wanted = source.get(name)
        if name in harmful:
            # The copy keeps what an operator has set there instead.
            continue
        if wanted is not None and (wanted.set_on_topic or name in COPIED_ALWAYS):
            if wanted.value != present.value:
                changes[name] = wanted.value
        elif present.set_on_topic:
            changes[name] = None
    return changes
