"""
The control connections from each task to the driver.

Spark gives a Python task neither a signal to stop nor a way to report, so each task has a TCP connection to
the driver. If the connection breaks, the task is an orphan and stops producing. Messages are lines of JSON.
The first one of a task says who it is: ``{"hello": token, "job": 1, "attempt": 0, "clock_s": 12.5}``. The
driver answers with its state, and sends it again when it changes, or when it renews the lease::

    {"shoal": "0.1.0", "stop": false, "clock_s": 12.5, "lease_s": 20.0,
     "membership": {"member_id": "…", "generation": 7, "instance_id": "…"},
     "steering": {"paused": [], "bytes_per_s": 5000000}, "document": […]}

The *document* is the desired state of the task (:mod:`~shoal.mirroring.model.reports`). A line
has it if it has changed, and the newest one counts. Which partition is in which document is decided by
:class:`.Assignment`. A partition that a document no longer has is left by the task, which reports that.

A lease counts from the time at which the driver gave it, not from the time at which the task reads it. If a
task was stopped, it finds old lines in its socket. The two may be on different machines, so the task sends a
reading of its own clock (``clock_s``) with each line. Each line also has ``waits``: whether a worker waits
for bytes of the mirror's limit (:mod:`.limit`). After each line that it reads, the task sends one with these
two. The driver returns the newest reading, and the task counts ``lease_s`` from that reading: the driver gave
the lease after it. All other lines of a task are reports.

The first line of the driver also has the clusters' ``credentials``, sealed
(:mod:`~shoal.mirroring.credentials`).
"""

from .client import ControlConnection, WorkerControl
from .protocol import lease_clock_s
from .server import ControlServer, DriverEvents

__all__ = [
    "ControlConnection",
    "ControlServer",
    "DriverEvents",
    "WorkerControl",
    "lease_clock_s",
]
