"""
The control connections from each task, and from the planner, to the driver.

Spark gives a Python task neither a signal to stop nor a way to report, so each task has a TCP connection
to the driver. The driver sends the member of the group that commits, the lease, the end of the window, and
a request to stop. The task sends reports. If the connection breaks, the task is an orphan and stops
producing.

Messages are lines of JSON. The first one is
``{"hello": token, "window": 3, "clock_s": 12.5}``. The driver answers
with its state, and sends the state again when it changes::

    {"shoal": "0.1.0", "stop": false, "clock_s": 12.5, "lease_s": 20.0,
     "membership": ["member-id", 7, "instance-id"], "ends_in_s": 14.9, "lead_s": 10.0}

A lease counts from the time at which the driver gave it, not from the time at which the task reads it. If a
task was stopped, it finds old lines in its socket. The two may be on different machines, so the task sends a
reading of its own clock (``clock_s``) with each line. After each line that it reads, it sends a line with
the clock alone. The driver returns the newest reading, and the task counts ``lease_s`` from that reading:
the driver gave the lease after it.

A task requests partitions with ``{"takes": [["topic", 3], …]}``. The driver answers with the positions of
former tasks (:class:`~shoal.mirroring.model.handover.Handover`). Every other line of a task is a report.

The tasks of the next window start while those of the current one copy, ``lead_s`` before its end. The driver
answers their requests after the current window. Before an answer, the former tasks have reported that they
left all of its partitions (``leaves``). If the driver dismisses the next window, its tasks get no partition.

If the mirror is steered, the line with the handover has ``steering`` as well, and each change is a line of
its own (:class:`~shoal.mirroring.model.steering.TaskSteering`). The task confirms it by ``"steered": true``
in its next line, and only then gets the next one. If the mirror is limited, a worker without bytes asks for
some: ``{"wants": [rate, worker, partitions, debt]}``. The driver answers when some are due:
``{"grants": {"rate": 3, "to": [[worker, bytes], …]}}``.

A task that needs credentials asks for them over a connection of its own: ``{"hello": token, "for":
"credentials"}`` returns ``{"credentials": "…"}``, sealed (:mod:`~shoal.mirroring.credentials`).
"""

from .client import ControlConnection, ask_sealed_credentials
from .protocol import lease_clock_s
from .server import ControlServer, DriverEvents
from .task_control import Control, Uncontrolled, WorkerControl

__all__ = [
    "Control",
    "ControlConnection",
    "ControlServer",
    "DriverEvents",
    "Uncontrolled",
    "WorkerControl",
    "ask_sealed_credentials",
    "lease_clock_s",
]
