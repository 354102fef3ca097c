"""
``shoal mirror``: topics by their names, and a consumer group that one mirror holds.

Without ``--once`` the selection is looked up again at each ``--refresh``, and so are the copies.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...archive.description import now_ms
from ...client.cluster import Cluster, patiently
from ...client.coordinator import MemberId
from ...errors import ShoalError
from ...state_directory import state_dir
from ..control import ControlServer
from ..cutover.certificate import read_certificate
from ..model.incidents import Incident, IncidentKind
from ..model.options import checkpoint_name
from ..model.progress import Phase, Summary
from ..model.reports import SmallBatches
from ..model.text import first_few, offsets
from ..positions import GroupPositions
from ..prepare.changes import Prepared, PreparedTopic
from ..prepare.create import prepare
from ..sync.follower import GroupFollower
from .following import Following
from .going_back import go_back, starts_at_cut
from .group_lock import GroupLock, MirrorIdentity
from .lookout import CopyWatch, Discovery, Lookout, Watch, prepare_again
from .run import START_PATIENCE_S, MirrorRun
from .schedule import PartitionSchedule, Running
from .starts import Starts
from .steering import Steering

__all__ = ["TopicMirror"]


class TopicMirror:
    """A mirror of selected topics. Composes a :class:`~.run.MirrorRun`."""

    def __init__(self, run: MirrorRun) -> None:
        """Prepare; nothing begins."""
        self._run = run
        self._options = run.options
        self._identity: MirrorIdentity

    def run(self) -> Summary:
        """Mirror to the end; see :meth:`.run.MirrorRun.run`."""
        return self._run.run(self._mirror)

    def _mirror(self, resources: contextlib.ExitStack) -> Summary:
        run, options = self._run, self._options
        with run.signals.interrupting():
            prepared = self._prepare(resources)
        group = prepared.group
        run.about.group = group
        schedule = PartitionSchedule(
            prepared.topics, run.metrics, on_small_batches=self._warn_of_small_batches
        )
        for name, error in prepared.unreadable.items():
            kind = IncidentKind.UNREADABLE_TOPIC
            run.metrics.count(Incident(kind, str(error), lost=None, partition=name))
        mirror, started_ms = run.listen(schedule, group, resources), now_ms()
        control = mirror.control
        keeper = options.source.keeper or options.source
        lock = GroupLock(keeper, group, self._identity.name, control.renew, options.timing)
        resources.enter_context(lock)
        control.use_group(lock.begin_generation)
        starts = Starts(options, group, options.topics, lambda: control.membership)
        with run.signals.interrupting():
            run.metrics.enter(Phase.FINDING_POSITIONS)
            lock.acquire(prepared.partitions, START_PATIENCE_S)
            if options.from_certificate is not None:
                self._go_back(options.from_certificate, group, control)
            steering = self._steer(mirror)
            following = Following(mirror)
            if options.sync:
                following.look_at_once()
        resources.callback(self._conclude, prepared, schedule, started_ms)
        watches: list[Watch] = []
        if not options.once:
            watches += [Discovery(mirror, partial(self._add, schedule, lock, steering)), following]
        watches.append(
            CopyWatch(mirror, lambda topics: prepare_again(mirror, topics, schedule.sizes).warnings)
        )
        resources.enter_context(Lookout(mirror, *watches))
        selection = options.group_selection
        if selection is None:
            return run.copy(mirror, prepared, starts, lock)
        followers = GroupFollower(options, selection, group, lambda: schedule.names, run.metrics, run.warn)
        resources.callback(followers.close)
        followers.begin()
        summary = run.copy(mirror, prepared, starts, lock)
        followers.finish()
        return replace(summary, consumer_groups=run.metrics.progress().consumer_groups)

    def _conclude(self, prepared: Prepared, schedule: PartitionSchedule, started_ms: int) -> None:
        """Write the manifest of an archive, once the tasks have ended."""
        try:
            prepared.conclude(schedule.names.values(), started_ms)
        except ShoalError as error:
            self._run.warn(f"the manifest of this run is not archived: {error}")

    def _steer(self, mirror: Running) -> Steering:
        run = self._run
        steering = Steering(
            mirror,
            stop=lambda: run.signals.end_by("the control socket"),
            retry=run.retry_stopped,
            create_lost=partial(self._create_lost, mirror),
        )
        run.on_command = steering.carry_out
        return steering

    def _prepare(self, resources: contextlib.ExitStack) -> Prepared:
        run, options = self._run, self._options
        with Cluster(options.source) as source, Cluster(options.destination) as destination:
            run.warn_of_unreachable(source, destination)

            def on_group(group: str) -> None:
                """Take the group's directory, and begin to start the engine, which logs there."""
                if options.from_certificate is not None:
                    committed = GroupPositions(source, group, MemberId)
                    state = patiently(committed.read_state, patience_s=START_PATIENCE_S)
                    # Refuses a wrong way back, before anything is created or joined.
                    starts_at_cut(options, state, source, destination, patience_s=START_PATIENCE_S)
                directory = Path(options.checkpoint or state_dir() / "mirrors" / checkpoint_name(group))
                self._identity = run.take_directory(directory, resources)
                run.start_engine(directory, resources)

            prepared = prepare(
                options,
                source,
                destination,
                on_group=on_group,
                on_create=lambda: run.metrics.enter(Phase.CREATING),
            )
        for warning in prepared.warnings:
            run.warn_in_report(warning)
        return prepared

    def _warn_of_small_batches(self, found: SmallBatches) -> None:
        rate = f"{found.bytes_per_s / 1e6:.1f} MB/s"
        self._run.warn_in_report(
            f"batches have {found.average_bytes:,} bytes on average, and a broker takes one batch of a "
            f"partition in a request. So requests limit a connection to {rate}. --rebatch 64k joins the "
            "batches (docs/topics.md)"
        )

    def _go_back(self, file: str, group: str, control: ControlServer) -> None:
        """Begin at the cut, before anything else gives a partition its position."""
        certificate = read_certificate(file)
        begun = go_back(self._options, certificate, group, control.membership, patience_s=START_PATIENCE_S)
        if begun:
            self._run.notify(f"{first_few(begun)}: mirrored back from the cut of {certificate.at}")

    def _add(
        self, schedule: PartitionSchedule, lock: GroupLock, steering: Steering, topic: PreparedTopic
    ) -> None:
        """Have a topic copied that is new or back, or has new partitions."""
        added = schedule.add(topic)
        lock.extend(added)
        steering.look()
        news = f"topic {topic.source} is back"
        if added:
            named = offsets(added[0].partition, added[-1].partition, "partition")
            news = f"{named} of topic {topic.source} found"
        self._run.notify(f"{news}, and mirrored to {topic.destination}")

    def _create_lost(self, mirror: Running, topic: str) -> None:
        """Create the copy of a source topic if it is gone, since an operator accepts its loss."""
        accepted = self._options.continue_after | {IncidentKind.DESTINATION_LOSS}
        for warning in prepare_again(
            mirror, [topic], mirror.schedule.sizes, continue_after=accepted
        ).warnings:
            mirror.warn_in_report(warning)
