"""
The control connection: from each task, and from the planner, to the driver.

Spark gives a Python task neither a signal to stop nor a way to report. One
TCP connection serves for all: the driver says who commits, renews the lease,
says when the slice of time is over, and asks for an end; the task reports
what it did. When it breaks, the task is an orphan and stops producing.

Lines of JSON. The first one is ``{"hello": token, "clock_s": 12.5, "wall_ms": 1.7e12, "process": "host:7"}``,
and the driver answers with its state, and again whenever that changes::

    {"shoal": "0.1.0", "stop": false, "clock_s": 12.5, "wall_ms": 1.7e12, "lease_s": 20.0,
     "membership": ["member-id", 7, "instance-id"], "ends_in_s": 14.9}

A lease counts from when the driver gave it, and not from when the task reads of it: a task that was stopped
finds old lines in its socket. The two may be on different machines, so the task sends a reading of its own
clock (``clock_s``) with each line. After each line that it reads it sends one with nothing else. The driver
sends the newest reading back, and the task counts ``lease_s`` from that reading: the driver gave the lease
after it.

``{"takes": [["topic", 3], …]}`` from a task is answered with what former tasks know of these
partitions (:class:`~shoal.mirroring.control.handover.Handover`); every other line of a task is a report.

A client with one question sends the subject in ``for``. ``{"hello": token, "for": "plan"}`` is answered with
``{"plan": …}`` (:class:`~shoal.mirroring.model.window.WindowPlan`), or null where nothing more is to be
planned; the planner may report what it left out, and its ``"starts"``: where partitions begin that have
no pair, for the planner that may follow it, which asks ``for`` them. ``"credentials"`` is answered with
``{"credentials": "…"}``, sealed (:mod:`~shoal.mirroring.credentials`).
"""

from .client import Control, ControlConnection, Uncontrolled, WorkerControl, ask_letter, ask_starts, planning
from .clock import ReferenceClock
from .protocol import lease_clock_s
from .server import ControlServer, DriverEvents

__all__ = [
    "Control",
    "ControlConnection",
    "ControlServer",
    "DriverEvents",
    "ReferenceClock",
    "Uncontrolled",
    "WorkerControl",
    "ask_letter",
    "ask_starts",
    "lease_clock_s",
    "planning",
]
