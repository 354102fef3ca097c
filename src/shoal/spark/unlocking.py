"""Request the secrets of both clusters from a mirror's driver, once in each planner and task."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import TypeVar

from shoal.client.config import ClientConfig
from shoal.mirroring.control import ask_sealed_credentials
from shoal.mirroring.credentials import Credentials
from shoal.spark.options import ControlAddress, ReadOptions, WriteOptions

__all__ = ["unlocked"]

Options = TypeVar("Options", ReadOptions, WriteOptions)


def unlocked(options: Options) -> Options:
    """
    Return options with the clusters' credentials. Never pickle them.

    Raises:
        Stopped: The driver is gone.

    """
    if options.control is None or not options.control.locked:
        return options
    credentials = _credentials(options.control)
    if isinstance(options, ReadOptions):
        destination = options.destination and _unlocked(options.destination, credentials)
        return dataclasses.replace(
            options, source=_unlocked(options.source, credentials), destination=destination
        )
    copy = options.copy and dataclasses.replace(
        options.copy,
        source=_unlocked(options.copy.source, credentials),
        destination=_unlocked(options.copy.destination, credentials),
    )
    return dataclasses.replace(options, destination=_unlocked(options.destination, credentials), copy=copy)


# Spark uses a Python worker again, for tasks of this mirror and of others.
@lru_cache(maxsize=8)
def _credentials(control: ControlAddress) -> Credentials:
    return Credentials.unseal(
        ask_sealed_credentials((control.host, control.port), control.token), control.key
    )


def _unlocked(config: ClientConfig, credentials: Credentials) -> ClientConfig:
    return dataclasses.replace(config, security=credentials.by_cluster.get(config.name))
