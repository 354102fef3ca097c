"""
Topic configurations: those that a new copy gets, and those of an existing copy that prevent a mirror.

The module sends no requests; :mod:`.inspect` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...client.admin import ConfigEntry
from ...errors import ProtocolError

__all__ = [
    "COPIED_ALWAYS",
    "COPIED_WHERE_SET",
    "ConfigFinding",
    "Configs",
    "TopicState",
    "compare",
    "configs_of_copy",
    "harm_sentence",
    "harmful_values",
]

#: A copy gets these with the value that is in force at the source, be it the
#: topic's own or a broker's default: they decide which batches the copy takes
#: and how long it keeps them.
COPIED_ALWAYS = ("cleanup.policy", "max.message.bytes", "retention.bytes", "retention.ms")

#: A copy gets these if they are set on the source topic itself.
#:
#: Not among them, as in MirrorMaker 2's ``config.properties.exclude``: throttles
#: and ``message.timestamp.type``, ``min.insync.replicas`` and
#: ``unclean.leader.election.enable``, which belong to the destination's own
#: policy. Nor ``message.timestamp.before.max.ms`` and ``…difference.max.ms``:
#: records are older when they are copied than when they were produced. (For
#: ``…after.max.ms`` see :func:`configs_of_copy`.)
#: Nor what concerns a broker's disks (``flush.*``, ``preallocate``, ``remote.*`` …).
COPIED_WHERE_SET = (
    "delete.retention.ms",
    "index.interval.bytes",
    "max.compaction.lag.ms",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
)

#: A copy gets these only from here on. Kafka accepts less, and then closes a segment with almost each batch,
#: until the copy takes no records (``LogConfig``, ``LogSegment.shouldRoll``):
#:
#: - An index entry for each batch is the most there can be. A batch has 61 bytes or more.
#: - Kafka 4.1 and later refuse a smaller segment, and each version refuses a batch larger than a segment.
#: - A full index closes its segment. An entry of the time index has 12 bytes.
#: - A segment is closed once its batches are further apart in time. A mirror writes those of days in seconds.
LEAST_VALUES = {
    "index.interval.bytes": 61,
    "segment.bytes": 1024 * 1024,
    "segment.index.bytes": 1024,
    "segment.ms": 1000,
}

_TIMESTAMP_BEFORE = "message.timestamp.before.max.ms"
_TIMESTAMP_AFTER = "message.timestamp.after.max.ms"

_FOREVER = 2**63 - 1

Configs = Mapping[str, ConfigEntry]


@dataclass(frozen=True, slots=True)
class TopicState:
    """
    The facts about a topic that a mirror compares, on either side.

    Attributes:
        replicas: The replicas of the partition with the fewest.
        configs: The configurations in force, defaults included; empty if this principal may not read them.

    """

    replicas: int
    configs: Configs

    def text(self, name: str, default: str) -> str:
        """Return a configuration's value; the default if the broker is too old to have it."""
        entry = self.configs.get(name)
        return default if entry is None or entry.value is None else entry.value

    def number(self, name: str, default: int) -> int:
        """
        Return a configuration that is a number.

        Raises:
            ProtocolError: The cluster returned another type.

        """
        text = self.text(name, str(default))
        try:
            return int(text)
        except ValueError as error:
            raise ProtocolError(f"the configuration {name} is {text!r}, which is not a number") from error

    @property
    def cleanup_policies(self) -> frozenset[str]:
        """The words of ``cleanup.policy``."""
        entry = self.configs.get("cleanup.policy")
        return frozenset({"delete"}) if entry is None or entry.value is None else entry.words

    def retention(self, name: str, default: int) -> int:
        """Return ``retention.ms`` or ``retention.bytes``; endless for a topic that is only compacted."""
        value = self.number(name, default) if "delete" in self.cleanup_policies else -1
        return _FOREVER if value < 0 else value

    @property
    def takes_append_time(self) -> bool:
        """Whether records have the time of their append."""
        return self.text("message.timestamp.type", "CreateTime") == "LogAppendTime"

    def timestamp_range(self, name: str) -> int:
        """
        Return ``message.timestamp.before.max.ms`` or ``…after…``.

        Before Kafka 3.6 there was one for both, ``…difference…``, and no limit by default.
        """
        difference = self.number("message.timestamp.difference.max.ms", _FOREVER)
        return min(difference, self.number(name, _FOREVER))


@dataclass(frozen=True, slots=True)
class ConfigFinding:
    """
    Something about an existing destination topic.

    Attributes:
        fatal: The mirror would lose or reorder records, or could not go on.
        text: The problem and the remedy; the name of the topic goes in front.

    """

    fatal: bool
    text: str


def configs_of_copy(source: TopicState, *, has_timestamp_after: bool) -> dict[str, str]:
    """
    Return the configuration to create a copy with.

    Args:
        source: The source topic, with its configs.
        has_timestamp_after: Whether the destination has ``message.timestamp.after.max.ms``
            (Kafka 3.6 and later). It is an hour by default since 4.0; the copy
            must take what the source took, so it gets the source's.

    """
    names = [name for name in COPIED_ALWAYS if name in source.configs]
    names += [name for name in COPIED_WHERE_SET if _is_set(source.configs, name)]
    names = [name for name in names if name not in harmful_values(source.configs)]
    copied = {name: value for name in names if (value := source.configs[name].value) is not None}
    if has_timestamp_after:
        copied[_TIMESTAMP_AFTER] = str(source.timestamp_range(_TIMESTAMP_AFTER))
    # Any other value makes the broker decompress and recompress every batch of another codec.
    return {"compression.type": "producer", **copied}


def harmful_values(configs: Configs) -> dict[str, str]:
    """Return the values of a source topic that would make its copy unwritable, sorted by name."""
    set_there = ((name, configs[name].value or "") for name in LEAST_VALUES if _is_set(configs, name))
    return {name: value for name, value in set_there if not _is_at_least(value, LEAST_VALUES[name])}


def harm_sentence(topic: str, values: Mapping[str, str]) -> str:
    """Return the warning about values of a source topic that its copy does not get."""
    named = ", ".join(f"{name}={value} (less than {LEAST_VALUES[name]})" for name, value in values.items())
    return (
        f"topic {topic}: the copy does not get {named}, which would make it unwritable. It has the "
        "destination's default. Set another value at the source, or one at the destination"
    )


def _is_at_least(value: str, least: int) -> bool:
    try:
        return int(value) >= least
    except ValueError:
        return False


def _is_set(configs: Configs, name: str) -> bool:
    return name in configs and configs[name].set_on_topic


def compare(source: TopicState, destination: TopicState) -> Iterator[ConfigFinding]:
    """Yield the settings of a destination topic that prevent a mirror of a source topic, or harm its copy."""
    if not destination.configs:
        return
    least = destination.number("min.insync.replicas", 1)
    if least > destination.replicas:
        yield ConfigFinding(
            True,
            f"has {destination.replicas} replicas and min.insync.replicas={least}: its brokers will never "
            "acknowledge a batch. Add replicas, or lower min.insync.replicas",
        )
    compression = destination.text("compression.type", "producer")
    # If the source's brokers compressed everything alike, the destination's have nothing to do.
    if compression not in ("producer", source.text("compression.type", "producer")):
        yield ConfigFinding(
            False,
            f"compression.type is {compression}: the destination's brokers recompress every batch of "
            "another codec, at 10 to 40 times the CPU, and the copy is not byte for byte. "
            "Set it to producer",
        )
    yield from _times(source, destination)
    if source.configs:
        yield from _sizes(source, destination)
        yield from _cleanup(source, destination)


def _sizes(source: TopicState, destination: TopicState) -> Iterator[ConfigFinding]:
    largest = source.number("max.message.bytes", 1_048_588)
    # A broker refuses a batch that is larger than a segment.
    in_segment = min(largest, source.number("segment.bytes", largest))
    for name, most in (("max.message.bytes", largest), ("segment.bytes", in_segment)):
        size = destination.number(name, most)
        if size < most:
            yield ConfigFinding(
                True, f"{name} is {size}, but a batch of the source may have {most} bytes. Raise it to {most}"
            )


def _times(source: TopicState, destination: TopicState) -> Iterator[ConfigFinding]:
    if destination.takes_append_time:
        yield ConfigFinding(
            False,
            "message.timestamp.type is LogAppendTime: every record gets the time of its copying. "
            "Set it to CreateTime to keep the times of the source",
        )
        return
    # The source's limit of old records held when they were new.
    wanted = {_TIMESTAMP_BEFORE: _FOREVER}
    if source.configs:
        wanted[_TIMESTAMP_AFTER] = source.timestamp_range(_TIMESTAMP_AFTER)
    for name, least in wanted.items():
        limit = destination.timestamp_range(name)
        if limit < least:
            yield ConfigFinding(
                False,
                f"{name} is {limit}: a record whose time is further from the broker's clock is refused and "
                f"stops its partition. Set it to {least}",
            )


def _cleanup(source: TopicState, destination: TopicState) -> Iterator[ConfigFinding]:
    if "compact" in destination.cleanup_policies - source.cleanup_policies:
        yield ConfigFinding(
            False,
            "is compacted and the source is not: only the last record of each key is kept, and a record "
            "without a key is refused and stops its partition. Set cleanup.policy=delete",
        )
    for name, default in (("retention.ms", 604_800_000), ("retention.bytes", -1)):
        kept = destination.retention(name, default)
        if kept < source.retention(name, default):
            yield ConfigFinding(
                False,
                f"{name} is {kept} and the source keeps more: older records are deleted soon after they "
                "arrive. Raise it to keep them",
            )
