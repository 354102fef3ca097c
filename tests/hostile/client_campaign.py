"""Hostile clients against ``shoal broker`` and ``shoal gateway``, each in a separate process.

In steps. Each step sends some thousand requests, while a crowd occupies connections and one or two bombs
arrive. An honest client is served all the time. After each step, these promises are checked:

- the process runs, and printed no traceback;
- no request that requires a response was left without one, by a clock that stands still while these
  processes wait for a CPU;
- the honest client was served each time, within :data:`SERVED_S`;
- threads and sockets are back to their numbers before the first step, within :data:`BACK_S`;
- the server never has more threads or sockets than its connections need;
- if a gateway requires a login, it serves no client without one, and disconnects each of them;
- the process never needed more memory than :data:`MOST_BYTES`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil

from rig.process import peak_rss_of
from shoal.gateway.login.credential import HASHES, salted
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from tests.broker.wire import Wire
from tests.integration.gateway_process import gateway_process
from tests.server_process import ServerProcess

from .attackers import End, LogIn, Tally, attack
from .bombs import BOMBS, bomb
from .crowd import Crowd
from .fair_clock import FairClock
from .inputs import TOPICS, Input, draw_input
from .probe import Probe
from .strangers import PASSWORD, USER, Stranger, flood, log_in, visit

__all__ = ["MOST_BYTES", "SERVED_S", "SERVERS", "ClientResult", "Target", "attack_server"]

_MEGABYTE = 1 << 20

#: Promises; the machine may be busy with other programs.
SERVED_S = 30.0
BACK_S = 30.0
MOST_BYTES = 1024 * _MEGABYTE

#: The servers to attack. Behind the last one is a gateway with users, which stands for a locked cluster.
SERVERS = ("broker", "gateway", "gateway-users", "gateway-pass-through")
_WITH_LOGIN = SERVERS[2:]

_CONNECTIONS = 32
#: Of a gateway that requires a login: more than the campaign has at a time, except for a flood.
_MOST_CONNECTIONS = 100
_FLOOD = 500
#: So many that a flood comes faster than its passwords can be checked.
_ITERATIONS = 40_000
#: A gateway has at most one connection to the cluster for each client, and refuses the others: it may be
#: closing some of these. On a busy machine the highest number seen is 299. A flood alone has 500.
_MOST_SOCKETS = 2 * _MOST_CONNECTIONS + 150
#: Threads of open and recently closed connections. On a busy machine the highest number seen is 276. If
#: logins have no bound, it is 888.
_MOST_THREADS = 450
_BOMBS_IN_A_STEP = 2
_FOREIGN = ("Traceback (most recent call last)", "Exception in thread", "a request failed", "unexpected ")


@dataclass
class Target:
    """A server under attack.

    Attributes:
        name: One of :data:`SERVERS`.
        process: The server to attack.
        behind: The servers behind a gateway; the broker comes last.
    """

    name: str
    process: ServerProcess
    behind: tuple[ServerProcess, ...] = ()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.process.address.rsplit(":", 1)
        return host, int(port)

    @property
    def processes(self) -> list[ServerProcess]:
        return [self.process, *self.behind]

    @property
    def log_in(self) -> LogIn | None:
        """The login of its clients, if it requires one."""
        return log_in if self.name in _WITH_LOGIN else None

    @classmethod
    @contextlib.contextmanager
    def started(cls, name: str) -> Iterator[Target]:
        """Start a server, and require a clean end."""
        with ExitStack() as stack:
            room = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-hostile-")))
            arguments = ["--listen", "127.0.0.1:0", "--data", str(room / "data")]
            if name == "broker":
                arguments += [
                    "--config",
                    "shoal.old.versions=true",
                    "--config",
                    "shoal.multi.batch.produce=true",
                ]
            broker = stack.enter_context(ServerProcess("broker", room / "broker.log", arguments).running())
            behind: tuple[ServerProcess, ...] = (broker,)
            if name in _WITH_LOGIN:
                limits = ("--max-connections", str(_MOST_CONNECTIONS))
                options = (*_users(room), *(limits if name == "gateway-users" else ()))
                locked = stack.enter_context(gateway_process(broker.address, *options))
                behind = (locked, broker)
            match name:
                case "broker":
                    yield cls(name, broker)
                case "gateway":
                    yield cls(name, stack.enter_context(gateway_process(broker.address)), behind)
                case "gateway-users":
                    yield cls(name, locked, (broker,))
                case _:
                    config = room / "upstream.properties"
                    config.write_text("security.protocol=SASL_PLAINTEXT\n")
                    passing = gateway_process(
                        locked.address,
                        "--upstream-config",
                        str(config),
                        "--sasl-pass-through",
                        "--broker-ids",
                        "1",
                        *limits,
                    )
                    yield cls(name, stack.enter_context(passing), behind)


def _users(room: Path) -> tuple[str, ...]:
    """Write a file of users, and return the options by which a gateway requires their login."""
    file = room / "users.toml"
    file.touch(mode=0o600)
    secrets = {each: salted(each, PASSWORD.encode(), b"salt of 16 bytes", _ITERATIONS) for each in HASHES}
    file.write_text("\n".join([f"[{USER}]", *(f'{name} = "{each}"' for name, each in secrets.items()), ""]))
    return ("--users", str(file), "--sasl-mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512")


@dataclass
class ClientResult:
    """Results of a campaign against one server.

    Attributes:
        strangers: Number of clients without a login, by kind.
        without_cpu_s: Time for which the processes waited for a CPU of the machine.
        problems: The broken promises, each with its step.
    """

    target: str
    steps: int = 0
    ends: Counter[End] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    strangers: Counter[Stranger] = field(default_factory=Counter)
    bombs: int = 0
    crowd: int = 0
    longest_s: float = 0.0
    longest: str = ""
    served: int = 0
    longest_served_s: float = 0.0
    peak_bytes: int = 0
    most_threads: int = 0
    most_sockets: int = 0
    seconds: float = 0.0
    without_cpu_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return self.ends.total()

    def add(self, tally: Tally) -> None:
        self.ends += tally.ends
        self.kinds += tally.kinds
        if tally.longest_s > self.longest_s:
            self.longest_s, self.longest = tally.longest_s, tally.longest
        self.problems += [f"no answer: {each}" for each in tally.hung]


def attack_server(
    target: Target,
    seed: int,
    *,
    first: int,
    requests: int,
    step_requests: int,
    deadline: float,
    bombs: Sequence[str] = tuple(BOMBS),
) -> Iterator[ClientResult]:
    """Attack in steps; yield the result so far after each, and end at the first broken promise."""
    result = ClientResult(target.name)
    began = time.monotonic()
    numbers = itertools.count(first)
    _begin_anew(target)
    baseline = [_held(each) for each in target.processes]
    while result.requests < requests and time.monotonic() < deadline and not result.problems:
        step = _Step(target, seed, result, bombs)
        step.run(list(itertools.islice(numbers, min(step_requests, requests - result.requests))))
        step.check(baseline)
        result.steps += 1
        result.seconds = time.monotonic() - began
        yield result


@dataclass
class _Step:
    target: Target
    seed: int
    result: ClientResult
    bombs: Sequence[str]

    def run(self, numbers: list[int]) -> None:
        _begin_anew(self.target)
        with (
            Probe(self.target.process.address, self.target.log_in) as probe,
            _Watch(self.target.process) as watch,
            Crowd(self.target.address, self.seed, self.result.steps) as crowd,
        ):
            clock = FairClock([os.getpid(), *(each.process_id for each in self.target.processes)])
            began = time.monotonic()
            if self.target.log_in is not None:
                self._invite_strangers(len(numbers) // 4)
            inputs = self._inputs(numbers)
            self.result.add(attack(self.target.address, inputs, _CONNECTIONS, clock.now, self.target.log_in))
            self.result.without_cpu_s += time.monotonic() - began - clock.now()
        self.result.most_threads = max(self.result.most_threads, watch.most_threads)
        self.result.most_sockets = max(self.result.most_sockets, watch.most_sockets)
        if watch.most_threads > _MOST_THREADS:
            self._complain(f"it had {watch.most_threads} threads: more than {_MOST_THREADS}")
        if watch.most_sockets > _MOST_SOCKETS:
            self._complain(f"it had {watch.most_sockets} sockets: more than {_MOST_SOCKETS}")
        self.result.crowd += crowd.clients
        self.result.served += probe.served
        self.result.longest_served_s = max(self.result.longest_served_s, probe.longest_s)
        self.result.problems += probe.problems
        if probe.longest_s > SERVED_S:
            self.result.problems.append(f"an honest client was served after {probe.longest_s:.1f} s only")

    def _invite_strangers(self, count: int) -> None:
        flood(self.target.address, self.seed, self.result.steps, _FLOOD)
        visits = visit(self.target.address, self.seed, self.result.steps, count)
        self.result.strangers += visits.kinds
        self.result.problems += visits.problems

    def _inputs(self, numbers: list[int]) -> Iterator[Input]:
        """Insert bombs into the step's inputs, each kind in its turn."""
        every = max(1, len(numbers) // _BOMBS_IN_A_STEP)
        for at, number in enumerate(numbers):
            if at % every == every // 2:
                name = self.bombs[self.result.bombs % len(self.bombs)]
                self.result.bombs += 1
                yield bomb(name, number)
            else:
                yield draw_input(self.seed, number)

    def check(self, baseline: list[tuple[int, int]]) -> None:
        for process, before in zip(self.target.processes, baseline, strict=True):
            self._check_process(process, before)
        self.result.peak_bytes = peak_rss_of(self.target.process.process_id)
        if self.result.peak_bytes > MOST_BYTES:
            self._complain(f"it needed {self.result.peak_bytes // _MEGABYTE} MB")

    def _check_process(self, process: ServerProcess, before: tuple[int, int]) -> None:
        if not process.runs():
            self._complain("the process ended")
            return
        printed = process.log.read_text(errors="replace")
        for foreign in _FOREIGN:
            if (at := printed.find(foreign)) >= 0:
                self._complain(f"it printed {printed[max(0, at - 500) : at + 3000]!r}")
        deadline = time.monotonic() + BACK_S
        while _is_more(held := _held(process), before):
            if time.monotonic() > deadline:
                self._complain(f"threads and sockets {held} did not go back to {before} in {BACK_S:.0f} s")
                return
            time.sleep(0.05)

    def _complain(self, problem: str) -> None:
        self.result.problems.append(f"{self.target.name}, step {self.result.steps}: {problem}")


class _Watch:
    """Records the largest numbers of threads and sockets of a process; a context manager."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.most_threads = 0
        self.most_sockets = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):  # another check finds this
            while not self._ended.wait(0.05):
                threads, sockets = _held(self._process)
                self.most_threads = max(self.most_threads, threads)
                self.most_sockets = max(self.most_sockets, sockets)


def _held(process: ServerProcess) -> tuple[int, int]:
    """Return the numbers of a process's threads and sockets; its files are segments, which may grow."""
    found = psutil.Process(process.process_id)
    descriptors = Path(f"/proc/{process.process_id}/fd")
    sockets = 0
    for each in descriptors.iterdir():
        with contextlib.suppress(OSError):
            sockets += str(each.readlink()).startswith("socket:")
    return found.num_threads(), sockets


def _is_more(held: tuple[int, int], before: tuple[int, int]) -> bool:
    return held[0] > before[0] or held[1] > before[1]


def _begin_anew(target: Target) -> None:
    """Delete the topics that requests write to, and create them again, so that logs stay short."""
    topic_state = request_class(ApiKey.DELETE_TOPICS).DeleteTopicState
    with Wire(target.processes[-1].address) as wire:
        wire.call(
            ApiKey.DELETE_TOPICS,
            6,
            topics=[topic_state(name=name, topic_id=None) for name in TOPICS],
            topic_names=[],
            timeout_ms=10_000,
        )
        for name in TOPICS:
            wire.create_topic(name, 2)
