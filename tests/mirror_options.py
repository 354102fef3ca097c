"""Options of a mirror for tests, including those of copying, by their names alone."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from shoal.mirroring.model.copy_options import CopyOptions
from shoal.mirroring.model.options import MirrorOptions

__all__ = ["with_options"]

_OF_COPYING = {each.name for each in fields(CopyOptions)}


def with_options(options: MirrorOptions, **changes: Any) -> MirrorOptions:
    """Return the options with some of them changed, including those of copying."""
    copy = {name: value for name, value in changes.items() if name in _OF_COPYING}
    others = {name: value for name, value in changes.items() if name not in _OF_COPYING}
    return replace(options, copy=replace(options.copy, **copy), **others)
