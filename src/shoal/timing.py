"""
The times that shoal's threads wait, in one value.

A user's options set other times, such as intervals. These here have defaults that fit, and no option. They
travel in the settings of a cluster's connections, of a mirror, of its tasks and of a gateway. So a test that
must not wait so long gives other times to what it makes, and patches no module.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["DEFAULT_TIMING", "SYSTEM_CLOCK", "Clock", "Timing"]


@dataclass(frozen=True, slots=True)
class Clock:
    """
    The clocks of a machine, which a test can have in its hand.

    Attributes:
        monotonic: Returns the seconds since some moment.
        wall: Returns the seconds since 1970; it may be wrong.

    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


SYSTEM_CLOCK = Clock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """
    How long threads wait, and for what. Seconds, unless a name ends otherwise.

    Attributes:
        clock: The clock that measures the age of records and the pauses between refusals.
        patience_s: How long transient errors of a cluster are retried while a mirror is prepared.
        anyone_patience_s: The limit for one broker to connect and to answer, as long as another could answer
            instead.
        longest_left_out_s: A broker serves partitions with data by turns. One that is left out for so long
            comes first in a full fetch.
        busy_for_s: A partition that had records so lately probably has more soon, and has a larger share of
            a response.
        store_answers_s: A store that answers a short question so late is taken for one that does not answer.
            To load HDFS's client, and to list tens of thousands of objects, takes seconds.
        places_look_s: The time between two looks at the leaders of partitions and at their work, for balance.
        sound_s: The least run time of Spark's jobs that are started again. An error of the configuration ends
            them sooner.
        job_end_patience_s: The time for a job of Spark to end after its last task has.
        end_interval_s: The time between the ends of two tasks of a job of Spark that is replaced.
        plan_look_s: The interval between two looks whether more tasks are of use, and at leaders that did not
            answer.
        heartbeat_interval_s: The time between two heartbeats of a mirror in its group. As Kafka's consumers
            since 3.0 (KIP-735); within any broker's default bounds.
        first_line_s: The time for the whole first line of a connection to the driver, and not for each byte
            of it. Each task sends it at once.
        gathering_s: The tasks of a job that start together get their partitions together, if all of them
            connect within this time.
        leaving_patience_s: A task that does not leave a partition for so long gets no lease any more.
        tell_s: The whole seconds for sending the state to a task. If the task does not read, the driver
            closes the connection.
        silence_s: A mirror warns if no task has reported for so long. A task answers each heartbeat. Spark
            may need some seconds to start, and to replace an executor some more.
        restart_after_s: A mirror whose tasks have not reported for so long answers that it needs a restart,
            the last remedy: five times the silence after which it warns.
        shortest_refresh_s: The shortest time between two searches, or two translations, that an option may
            set: each of them sends requests about all topics.
        groups_interval_s: The time between two translations of groups' offsets while a mirror runs.
        last_round_patience_s: How long the last translation is repeated while a coordinator moves.
        deletion_confirmed_s: A topic is gone that stays gone for so long: a broker that has just started may
            not have all metadata yet.
        unlisted_s: A mirror warns of a broker that has not listed its groups for so long. One that restarts
            lists them again after a while.
        retry_stopped_s: The time between two attempts of a stopped partition whose reason can heal.
        jvm_look_interval_s: The time between two searches for JVMs, which read all of /proc: executors seldom
            start or end.
        first_jvm_look_interval_s: The same until Spark's Python daemon is found, which is about to start.
        http_peer_s: The limit of each read from a client of metrics and page, and for it to read an answer.
        http_request_s: The limit of request and answer together, for any pace of the client.
        gate_look_s: The time between two looks at what opens a gate of a cut-over. All of it should take
            60 s, and a look at 1,200 partitions takes some requests.
        leaving_s: The limit for the end of a closed connection's thread, on a busy machine: in the servers of
            metrics and page, and of tasks.
        memory_patience_s: The wait of a message for room in a gateway's memory before the connection of the
            slowest client is closed.
        next_leaves_s: A client's thread ends at once after its connection is closed. If it does not, for
            example within an attempt to connect to a broker, another one has to end after so long.
        longest_leave_s: The longest wait for the end of a client's thread, beyond the 4 s of an attempt to
            connect to a broker. New clients wait meanwhile. A client cannot cause a long wait: hanging up
            ends reads, writes and attempts to connect, and a password check takes milliseconds. Only the
            lookup of a broker's name may take longer.
        one_start_ms: Members of a group that start within this time, in milliseconds, count as one start:
            each marks only its own partitions, and another member may have marked its own first. It also
            covers the difference of their clocks.
        prepare_retry_s: The time between two attempts of a group's member to prepare topics.
        handler_patience_s: A task with a handler waits so long for brokers at its start, and for a topic or
            a partition that an output is for.
        stalled_s: A task reports a worker as waiting for its broker after so long without a response. A fetch
            without data is answered in half a second.
        isolate_s: A pair of several partitions gives up its requests after so long without a response. One
            partition may hold up the others, as if its followers do not answer.
        isolate_again_s: The shortest time until it does so again: a slow broker has to answer some time.
        end_patience_s: After a request to end, a task gives up whatever a worker waits for after so long
            without a response.
        first_retry_ms: The pause of a partition after its first failure in milliseconds; each further one is
            twice as long. As Kafka's retry.backoff.ms.
        longest_retry_ms: The longest such pause in milliseconds: an operator who has repaired a broker waits
            for it.
        admission_s: The longest pause of a worker: others may pass partitions on to it.
        look_interval_s: The time between two looks for partitions that have lost track, while others are
            copied.
        fetch_max_wait_ms: How long a source broker may wait for data before it answers a fetch, in
            milliseconds. As Kafka's fetch.max.wait.ms: a task's end waits for the answer.
        hold_look_s: The time between two looks of a pair that the throttle holds; a grant ends it early.
        recreated_after_s: After so long without a look at a topic, it may have been deleted and created
            again. An alignment begins with newer metadata, and a pair looks again before it sends anything,
            if requests list the topic by name.
        sign_of_life_s: A task without news reports at least so often that it is there, and the resources
            that it uses.
        report_interval_s: The time between two reports of a task while something is copied.
        quiet_report_interval_s: The time between two reports if nothing was fetched.
        small_batches_s: A worker looks so long at what it sends before it finds that requests limit it.
        write_patience_s: The time for brokers to name a partition's leader, or to answer about a producer,
            before rows of a data frame are written.
        gap_patience_timeouts: The number of request timeouts after which a range with an end waits no longer
            for records of its source: five minutes by default.
        most_between_answers_s: The most that counts of the time between two answers without records, or two
            refusals. A partition may have been held meanwhile. The pauses are at most 10 s, but each answer
            is about one partition, and hundreds may be silent.
        forget_refusal_s: A second refusal of a batch so much later has a cause of its own: the pauses between
            two tries are at most 10 s. Before it, there was an outage.
        unexplained_patience_s: A batch that a broker refuses without a reason, perhaps for a passing one, is
            tried again for so long.
        commit_interval_s: The time between two commits of a task's positions.
        last_commit_patience_s: The time for the last commit of a task, before Spark has to repeat the task.
        requested_commit_patience_s: The same if the mirror ends: a person may be waiting.
        plan_interval_s: The least time between two commits that batches behind gaps wait for. At this pace
            they cost the coordinator a tenth of a core at most.
        plan_patience_s: A batch behind a gap waits so long for the commit of the map that leads to it.
            The other partitions of its leaders wait, too. Then its partition waits alone.

    """

    clock: Clock = SYSTEM_CLOCK
    # Connections
    patience_s: float = 30.0
    anyone_patience_s: float = 1.0
    longest_left_out_s: float = 5.0
    busy_for_s: float = 10.0
    # An archive
    store_answers_s: float = 60.0
    # Spark's jobs
    places_look_s: float = 60.0
    sound_s: float = 60.0
    job_end_patience_s: float = 5.0
    end_interval_s: float = 2.0
    plan_look_s: float = 1.0
    # The driver of a mirror
    heartbeat_interval_s: float = 3.0
    first_line_s: float = 10.0
    gathering_s: float = 1.0
    leaving_patience_s: float = 10.0
    tell_s: int = 5
    silence_s: float = 60.0
    restart_after_s: float = 300.0
    shortest_refresh_s: float = 1
    groups_interval_s: float = 10.0
    last_round_patience_s: float = 10.0
    deletion_confirmed_s: float = 2.0
    unlisted_s: float = 60.0
    retry_stopped_s: float = 300.0
    jvm_look_interval_s: float = 30.0
    first_jvm_look_interval_s: float = 1.0
    # Metrics and page
    http_peer_s: float = 10.0
    http_request_s: float = 30.0
    leaving_s: float = 1.0
    # A cut-over
    gate_look_s: float = 1.0
    # A gateway
    memory_patience_s: float = 10.0
    next_leaves_s: float = 1.0
    longest_leave_s: float = 10.0
    # MirrorMaker 1's command line
    one_start_ms: int = 60_000
    prepare_retry_s: float = 5.0
    handler_patience_s: float = 30.0
    # A task
    stalled_s: float = 2.5
    isolate_s: float = 7.5
    isolate_again_s: float = 60.0
    end_patience_s: float = 2.5
    first_retry_ms: int = 100
    longest_retry_ms: int = 10_000
    admission_s: float = 0.1
    look_interval_s: float = 0.05
    fetch_max_wait_ms: int = 500
    hold_look_s: float = 0.05
    recreated_after_s: float = 1.0
    sign_of_life_s: float = 15.0
    report_interval_s: float = 0.5
    quiet_report_interval_s: float = 2.0
    small_batches_s: float = 10.0
    write_patience_s: float = 60.0
    gap_patience_timeouts: int = 10
    most_between_answers_s: float = 60.0
    forget_refusal_s: float = 180.0
    unexplained_patience_s: float = 60.0
    commit_interval_s: float = 5.0
    last_commit_patience_s: float = 60.0
    plan_interval_s: float = 0.02
    plan_patience_s: float = 1.0
    requested_commit_patience_s: float = 5.0


#: The times of every mirror outside of tests.
DEFAULT_TIMING = Timing()
