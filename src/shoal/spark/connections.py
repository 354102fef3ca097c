"""
Refuse to send credentials over connections of Spark that reveal them.

Spark serves its pickled tasks to every process that joins the application: without ``spark.authenticate``
to each that can connect, another user of the machine among them; on the network also to who listens, unless
they are encrypted. A mirror looks at its session before it sends anything, and so does
:func:`~shoal.spark.datasource.data_source`, which hands what it found to the processes that plan a job.
``format("shoal")`` by the class alone has no session to ask where Spark plans it: Spark tells these processes
nothing of its settings. But tasks have the settings as local properties (see :mod:`shoal.spark.speculation`),
so its tasks look there, before they use the credentials that came with them. By then the driver has served
them, for as long as the first task took to start; that no job goes on so is what a task can see to.
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
    """Whether all of Spark runs here: ``local[…]``, and ``local-cluster[…]`` with executors of their own."""
    return master.strip().startswith("local")


def refuse_revealing(master: str, setting_of: Callable[[str], str | None], consent: str) -> None:
    """
    Refuse connections that would reveal the clusters' credentials.

    Args:
        master: Spark's.
        setting_of: Returns a setting of Spark by its name; None if it is not set.
        consent: What allows it nevertheless, for the error.

    Raises:
        ConfigError: Authentication is off; or encryption is off, and Spark runs on several machines.

    """
    if refusal := refusal_of(master, setting_of, consent):
        raise ConfigError(refusal)


def refusal_of(master: str, setting_of: Callable[[str], str | None], consent: str) -> str:
    """Return the sentence of :func:`refuse_revealing`; nothing if the connections reveal no credentials."""
    if not _is_on(setting_of(_AUTHENTICATION)):
        setting, remedy = _AUTHENTICATION, f"{_AUTHENTICATION}=true and {_ENCRYPTION[0]}=true"
    elif not is_on_this_machine(master) and not any(_is_on(setting_of(each)) for each in _ENCRYPTION):
        setting, remedy = _ENCRYPTION[0], f"{_ENCRYPTION[0]}=true"
    else:
        return ""
    return (
        f"{setting} 'false': Spark's connections would reveal the credentials of the Kafka clusters; set "
        f"{remedy} for Spark, or give {consent} if only trusted users reach these connections"
    )


def refuse_in_plan(refusal: str, options: ReadOptions | WriteOptions) -> None:
    """
    Refuse to plan a job whose tasks would have credentials in them.

    Args:
        refusal: Of its session, by :func:`refusal_of`.
        options: Of the job.

    Raises:
        ConfigError: The session reveals them, and no option allows it.

    """
    if refusal and not options.allow_unauthenticated_spark and Credentials.of(*options.clusters):
        raise ConfigError(refusal)


def refuse_revealing_in_task(options: ReadOptions | WriteOptions) -> None:
    """
    Refuse a task whose options came, with credentials in them, over connections that reveal them.

    Raises:
        ConfigError: See :func:`refuse_revealing`.

    """
    if options.allow_unauthenticated_spark or not Credentials.of(*options.clusters):
        return
    context = TaskContext.get()
    master = context.getLocalProperty("spark.master") if context else None
    # The tasks of an RDD that was made of a DataFrame (``df.rdd``) have no settings.
    if context and master:
        refuse_revealing(master, context.getLocalProperty, OPTION_OF_CONSENT)


def _is_on(value: str | None) -> bool:
    return value is not None and value.strip().lower() == "true"
