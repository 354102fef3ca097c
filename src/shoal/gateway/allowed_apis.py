"""The APIs that an operator allows clients of the gateway to use, by name."""

from __future__ import annotations

from ..errors import ConfigError
from ..nearest import did_you_mean
from .versions import API_NAMES

__all__ = ["parse_apis"]

_ALL = "all"

#: Every client begins with this API, and its answer is the list of APIs.
_ALWAYS = "ApiVersions"

_KEYS = {name: api_key for api_key, name in API_NAMES.items()}


def parse_apis(text: str) -> frozenset[int]:
    """
    Parse ``Fetch,Metadata,...`` or ``all,-Produce,...`` to the keys of the allowed APIs.

    Raises:
        ConfigError: A name is unknown, or the list allows nothing.

    """
    allowed: set[int] = set()
    for item in (part.strip() for part in text.split(",")):
        if item == _ALL:
            allowed.update(_KEYS.values())
        elif item.startswith("-"):
            allowed.discard(_key(item[1:].strip(), text))
        elif item != _ALWAYS:
            allowed.add(_key(item, text))
    if not allowed:
        raise ConfigError(f"--apis {text!r}: allows no API. Name some, or begin with 'all'")
    return frozenset(allowed)


def _key(name: str, text: str) -> int:
    if name == _ALWAYS:
        raise ConfigError(f"--apis {text!r}: {_ALWAYS} cannot be denied, because every client begins with it")
    if name not in _KEYS:
        raise ConfigError(f"--apis {text!r}: unknown API {name!r}{did_you_mean(name, [_ALL, *_KEYS])}")
    return _KEYS[name]
