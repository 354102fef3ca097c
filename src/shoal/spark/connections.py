"""
Refuse to send credentials over connections of Spark that reveal them.

Spark serves its pickled tasks to every process that joins the application. Without ``spark.authenticate``,
every process that can connect may join, also one of another user of the machine. On the network, an attacker
can also read connections that are not encrypted.

A mirror checks its session before it sends anything. So does :func:`~shoal.spark.datasource.data_source`,
which passes the result to the processes that plan a job. ``format("shoal")`` by the class alone cannot check
the session at the plan: Spark does not send its settings to these processes. But tasks have the settings as
local properties (see :mod:`shoal.spark.speculation`), so they check them before they use their credentials.
By then the driver has served the credentials for the time that the first task took to start. The check in
the task ends the job, so that it does not serve them for longer.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark import TaskContext

from shoal.errors import ConfigError
from shoal.mirroring.credentials import Credentials
from shoal.spark.options import ReadOptions, WriteOptions

__all__ = [
    "OPTION_OF_CONSENT",
    "is_on_this_machine",
    "refusal_of",
    "refuse_in_plan",
    "refuse_revealing",
    "refuse_revealing_in_task",
]

OPTION_OF_CONSENT = "the option allowUnauthenticatedSpark=true"

_AUTHENTICATION = "spark.authenticate"
_ENCRYPTION = (
    "spark.network.crypto.enabled",
    "spark.authenticate.enableSaslEncryption",
    "spark.ssl.rpc.enabled",
)


def is_on_this_machine(master: str) -> bool:
    """Whether all of Spark runs on this machine: ``local[…]``, and ``local-cluster[…]`` with executors."""
    return master.strip().startswith("local")


def refuse_revealing(master: str, setting_of: Callable[[str], str | None], consent: str) -> None:
    """
    Refuse connections that would reveal the clusters' credentials.

    Args:
        setting_of: Returns a setting of Spark by its name; None if it is not set.
        consent: The option that allows such connections, for the error.

    Raises:
        ConfigError: Authentication is off; or encryption is off, and Spark runs on several machines.

    """
    if refusal := refusal_of(master, setting_of, consent):
        raise ConfigError(refusal)


def refusal_of(master: str, setting_of: Callable[[str], str | None], consent: str) -> str:
    """Return the error's text of :func:`refuse_revealing`; empty if the connections reveal no credentials."""
    if not _is_on(setting_of(_AUTHENTICATION)):
        setting, remedy = _AUTHENTICATION, f"{_AUTHENTICATION}=true and {_ENCRYPTION[0]}=true"
    elif not is_on_this_machine(master) and not any(_is_on(setting_of(each)) for each in _ENCRYPTION):
        setting, remedy = _ENCRYPTION[0], f"{_ENCRYPTION[0]}=true"
    else:
        return ""
    return (
        f"{setting} 'false': Spark's connections would reveal the credentials of the Kafka clusters. Set "
        f"{remedy} for Spark, or give {consent} if only trusted users reach these connections"
    )


def refuse_in_plan(refusal: str, options: ReadOptions | WriteOptions) -> None:
    """
    Refuse to plan a job whose tasks would contain credentials.

    Args:
        refusal: The result of :func:`refusal_of` for the session.
        options: The options of the job.

    Raises:
        ConfigError: The session's connections reveal the credentials, and no option allows it.

    """
    if refusal and not options.allow_unauthenticated_spark and Credentials.of(options.cluster):
        raise ConfigError(refusal)


def refuse_revealing_in_task(options: ReadOptions | WriteOptions) -> None:
    """
    Refuse a task that received options with credentials over connections that reveal them.

    Raises:
        ConfigError: See :func:`refuse_revealing`.

    """
    if options.allow_unauthenticated_spark or not Credentials.of(options.cluster):
        return
    context = TaskContext.get()
    master = context.getLocalProperty("spark.master") if context else None
    # The tasks of a DataFrame's RDD (``df.rdd``) have no settings.
    if context and master:
        refuse_revealing(master, context.getLocalProperty, OPTION_OF_CONSENT)


def _is_on(value: str | None) -> bool:
    return value is not None and value.strip().lower() == "true"
