"""
Refuse a session of Spark with speculation, or with connections that reveal the clusters' credentials.

With ``spark.speculation``, two attempts of a task would write the same partition at a time.

Spark serves its pickled tasks to every process that joins the application. Without ``spark.authenticate``,
every process that can connect may join, also one of another user of the machine. On the network, an attacker
can also read connections that are not encrypted.

A mirror checks its session before it sends anything. Its tasks receive the sealed credentials over the
control connection. The key that opens them reaches tasks on this machine in a file that only their user can
read. On a cluster the key is in the pickled task.

Spark does not send a session's settings to the processes that plan a job of ``format("shoal")``. So
:func:`~shoal.spark.datasource.data_source` checks the session, and the class that it returns has the result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pyspark import SparkContext

from shoal.client.config import ClientConfig
from shoal.errors import ConfigError
from shoal.mirroring.credentials import PROCESS_KEY, Credentials, key_in_file

__all__ = [
    "is_on_this_machine",
    "key_for_tasks",
    "refusal_of",
    "refuse_credentials",
    "refuse_speculation",
]

#: The user's consent to connections that reveal credentials: a setting of Spark, for every way to start it.
_CONSENT = "spark.shoal.allowUnauthenticated"
_AUTHENTICATION = "spark.authenticate"
_ENCRYPTION = (
    "spark.network.crypto.enabled",
    "spark.authenticate.enableSaslEncryption",
    "spark.ssl.rpc.enabled",
)
_SPECULATION = "spark.speculation"


def is_on_this_machine(master: str) -> bool:
    """Whether all of Spark runs on this machine: ``local[…]``, and ``local-cluster[…]`` with executors."""
    return master.strip().startswith("local")


def _is_on(value: str | None) -> bool:
    # As Spark reads it (ConfigHelpers.toBoolean): in upper or lower case, and with blanks around it.
    return value is not None and value.strip().lower() == "true"


# Speculation


def refuse_speculation(setting_of: Callable[[str], str | None]) -> None:
    """
    Refuse a scheduler that starts second attempts. Call it on the driver, or in a task before it writes.

    Args:
        setting_of: Returns a setting of Spark by its name; None if it is not set.

    Raises:
        ConfigError: The scheduler starts them.

    """
    value = setting_of(_SPECULATION)
    if _is_on(value):
        raise ConfigError(
            f"{_SPECULATION} {value!r}: two attempts of a task would write the same partition at a time. "
            "Set it to false"
        )


# Credentials


def refusal_of(master: str, setting_of: Callable[[str], str | None]) -> str:
    """
    Return why connections would reveal the clusters' credentials; empty if they do not.

    Authentication is off, or encryption is off and Spark runs on several machines.

    Args:
        setting_of: Returns a setting of Spark by its name; None if it is not set.

    """
    if _is_on(setting_of(_CONSENT)):
        return ""
    if not _is_on(setting_of(_AUTHENTICATION)):
        setting, remedy = _AUTHENTICATION, f"{_AUTHENTICATION}=true and {_ENCRYPTION[0]}=true"
    elif not is_on_this_machine(master) and not any(_is_on(setting_of(each)) for each in _ENCRYPTION):
        setting, remedy = _ENCRYPTION[0], f"{_ENCRYPTION[0]}=true"
    else:
        return ""
    return (
        f"{setting} 'false': Spark's connections would reveal the credentials of the Kafka clusters. Set "
        f"{remedy} for Spark, or {_CONSENT}=true if only trusted users reach these connections"
    )


def refuse_credentials(refusal: str, cluster: ClientConfig) -> None:
    """
    Refuse to plan a job whose tasks would contain credentials.

    Args:
        refusal: The result of :func:`refusal_of` for the session.
        cluster: The cluster that the tasks connect to.

    Raises:
        ConfigError: The session's connections reveal the credentials.

    """
    if refusal and Credentials.of(cluster):
        raise ConfigError(refusal)


@contextlib.contextmanager
def key_for_tasks(
    context: SparkContext, clusters: Sequence[ClientConfig], directory: Path
) -> Iterator[str | Path]:
    """
    Yield the key that opens the clusters' sealed credentials in tasks; an empty one if they have none.

    Args:
        directory: A directory for the file of the key, which is there until the context ends. Tasks on other
            machines have the key itself.

    Raises:
        ConfigError: See :func:`refusal_of`.

    """
    if not Credentials.of(*clusters):
        yield ""
        return
    master = str(context.master)
    if refusal := refusal_of(master, context.getConf().get):
        raise ConfigError(refusal)
    if is_on_this_machine(master):
        with key_in_file(directory) as file:
            yield file
    else:
        yield PROCESS_KEY
