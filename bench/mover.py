"""A mover: any command that copies one topic. `bench.movers` names them."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.topics import PARTITIONS
from rig.load import Codec

__all__ = ["Command", "Job", "Listeners", "Mover"]


@dataclass(frozen=True)
class Listeners:
    """The addresses that movers connect to instead of the clusters' own, such as proxies or TLS.

    Attributes:
        source: Bootstrap servers for the source.
        destination: The same for the destination.
        authority: A PEM file, if they have TLS: the authority that signed the certificates of all brokers.
        source_is_plain: Whether only the destination has it.
    """

    source: str
    destination: str
    authority: Path | None = None
    source_is_plain: bool = False


@dataclass(frozen=True)
class Job:
    """One topic to copy once.

    Attributes:
        source: Bootstrap servers of the source cluster.
        destination: Bootstrap servers of the destination cluster.
        topic: Name in the source, complete before the mover starts.
        copy: Name in the destination, never used before.
        codec: Codec of the topic's batches.
        directory: An empty directory, deleted after the run.
        partitions: Number of partitions of the topic.
        records: Number of records of the topic, if its offsets are not all records': markers of transactions
            have offsets, too.
        listeners: The addresses for movers, if they differ. The bench itself uses ``source`` and
            ``destination``.
    """

    source: str
    destination: str
    topic: str
    copy: str
    codec: Codec
    directory: Path
    partitions: int = PARTITIONS
    records: int | None = None
    listeners: Listeners | None = None

    @property
    def reads_from(self) -> str:
        """The source's bootstrap servers for a mover."""
        return self.source if self.listeners is None else self.listeners.source

    @property
    def writes_to(self) -> str:
        """The destination's bootstrap servers for a mover."""
        return self.destination if self.listeners is None else self.listeners.destination

    @property
    def authority(self) -> Path | None:
        """The authority of the brokers' certificates, if a mover connects over TLS."""
        return None if self.listeners is None else self.listeners.authority

    @property
    def java_properties(self) -> Mapping[str, str]:
        """A Java client's further properties for both clusters."""
        if self.authority is None:
            return {}
        trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority)}
        return {"security.protocol": "SSL", **trusted}

    @property
    def gc_log(self) -> Path:
        """The mover's log of garbage collections, if its JVM is started with `gc_log_option`."""
        return self.directory / "gc.log"

    @property
    def gc_log_option(self) -> str:
        return f"-Xlog:gc:file={self.gc_log}:time:filecount=0"


@dataclass(frozen=True)
class Command:
    """The command that runs a mover.

    Attributes:
        arguments: The command line. The process and all its descendants are measured.
        copy: The destination topic in which copied records are counted.
        ends_by_itself: False if the bench has to stop the mover after everything is copied.
        environment: Variables added to the environment.
        directory: Working directory; None for the bench's own.
    """

    arguments: Sequence[str]
    copy: str
    ends_by_itself: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None


class Mover(Protocol):
    """An object that copies a topic."""

    @property
    def name(self) -> str:
        """Its name in the table."""

    def command(self, job: Job) -> AbstractContextManager[Command]:
        """Prepare a run, unmeasured, and provide the command.

        The context ends after the run, and ends all processes of the preparation.
        """
