"""
Prepare an archive for a mirror: make the directory, and describe the topics in it.

An archive takes whatever batches a cluster has, so nothing of the source's configurations has to be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from ...archive.description import DamagedObject, now_ms
from ...archive.directory import Archive, ArchivedTopic
from ...archive.names import UnsafeName, check_topic, is_cluster_id, topic_directory_id
from ...archive.runs import write_run
from ...client.cluster import Cluster
from ...errors import ConfigError, ShoalError
from ..model.copy_options import DEFAULT_PRODUCER_ID_EXPIRATION_MS
from ..model.options import MirrorOptions
from ..model.text import first_few
from .changes import Prepared, PreparedTopic
from .descriptions import describe_topics
from .topic_configs import Configs

__all__ = ["archive_topics", "inspect_for_archive", "left_out"]


def inspect_for_archive(
    options: MirrorOptions,
    source: Cluster,
    names: Mapping[str, str],
    warnings: list[str],
    unreadable: dict[str, ShoalError],
    on_group: Callable[[str], object],
    *,
    creates: bool,
) -> Prepared:
    """
    Check the directory and the names, and with ``creates`` describe the topics in the archive.

    Args:
        source: Its metadata have the topics.
        names: The names in the archive by the names at the source.
        warnings: Those of the selection.
        unreadable: Receives the topics that the archive cannot have.
        on_group: Called with the group as soon as it is known.
        creates: Whether the archive is written next. If not, it has to be there.

    Raises:
        ConfigError: An option or a name does not fit to an archive.
        ShoalError: The store does not answer, or refuses.

    """
    if options.group is not None:
        raise ConfigError(
            f"--group {options.group!r}: the group of an archive has its name from the archive's id, so "
            "that no two mirrors write it. Leave the option out"
        )
    archive = options.destination.open_archive(creates=creates)
    _check_names(archive, names.values())
    group = options.group_between(source.metadata.cluster_id, archive.id)
    on_group(group)
    topics = source.metadata.topics
    if creates:
        refused, left = archive_topics(archive, source, names, source.config.timing.patience_s)
        unreadable.update(left)
        if unreadable.keys() >= names.keys():
            raise next(iter(unreadable.values()))
        if refused:
            warnings.append(
                f"topics {first_few(refused)} of {source} may not be described by this principal, "
                "so their configurations are not archived. Allow DESCRIBE_CONFIGS on them"
            )
    return Prepared(
        group,
        source.metadata.cluster_id,
        archive.id,
        {
            name: PreparedTopic(
                name, copy, len(topics[name].partitions), present_partitions=len(topics[name].partitions)
            )
            for name, copy in names.items()
            if name not in unreadable
        },
        (*warnings, *left_out(unreadable)),
        DEFAULT_PRODUCER_ID_EXPIRATION_MS,
        unreadable=unreadable,
        conclude=partial(write_run, archive),
    )


def left_out(unreadable: Mapping[str, ShoalError]) -> Sequence[str]:
    """Return a sentence for each topic that is left out."""
    return [f"topic {name} is left out: {error}" for name, error in unreadable.items()]


def _check_names(archive: Archive, names: Iterable[str]) -> None:
    """Refuse names that have no path of their own."""
    if not archive.store.is_local:
        return
    by_lower: dict[str, str] = {}
    for name in (*archive.topic_names(), *names):
        other = by_lower.setdefault(name.lower(), name)
        if other != name:
            raise ConfigError(
                f"topics {other} and {name} differ in case alone, and many file systems have one directory "
                "for both. Give one of them another name by --rename, or use an object store"
            )


def archive_topics(
    archive: Archive, source: Cluster, names: Mapping[str, str], patience_s: float
) -> tuple[Sequence[str], Mapping[str, ShoalError]]:
    """
    Describe topics in an archive, if they have changed.

    Args:
        source: Its metadata have the topics.
        names: The names in the archive by the names at the source.
        patience_s: Patience with transient errors.

    Returns:
        1. The topics whose configurations this principal may not read.
        2. Why the archive cannot have a topic, by its name at the source: the archive has a description of it
           that is damaged, or its name may not be a part of a path.

    Raises:
        ConfigError: Readers would take another creation of a topic.
        ShoalError: The source or the store does not answer, or refuses.

    """
    described, refused = describe_topics(source, list(names), patience_s)
    unreadable: dict[str, ShoalError] = {}
    for name, copy in names.items():
        try:
            archive.describe(_description(source, name, copy, described.get(name, {})))
        except (DamagedObject, UnsafeName) as error:
            unreadable[name] = error
        except ValueError as error:
            unreadable[name] = ConfigError(f"{archive.store.url} cannot have topic {name}: {error}")
    return refused, unreadable


def _description(source: Cluster, name: str, copy: str, configs: Configs) -> ArchivedTopic:
    topic, cluster_id = source.metadata.topics[name], source.metadata.cluster_id
    given = {key: each for key, each in configs.items() if each.value is not None}
    return ArchivedTopic(
        check_topic(copy),
        topic_directory_id(topic.topic_id, cluster_id),
        len(topic.partitions),
        max(1, min((len(each.replicas) for each in topic.partitions.values()), default=1)),
        {key: each.value or "" for key, each in given.items() if each.set_on_topic},
        {key: each.value or "" for key, each in given.items() if not each.set_on_topic},
        name,
        now_ms(),
        cluster_id if cluster_id and is_cluster_id(cluster_id) else None,
    )
