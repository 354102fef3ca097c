"""The process of a task as far as a test of this process can stop it: SIGSTOP, and SIGCONT later."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from shoal.net.listener import hang_up

__all__ = ["StoppableProcess"]


class StoppableProcess:
    """
    Stands between a task and its driver. Nothing passes while the process is stopped.

    A stopped process reads no line of its driver, also none that ends the connection. Its requests that were
    on their way arrive. The task's threads ask :meth:`stand_still` between a look at the lease and what the
    lease allows, where a real process may be stopped, too.

    Attributes:
        address: Where the task finds its driver.

    """

    def __init__(self, driver: tuple[str, int]) -> None:
        """Wait for the task's connection."""
        self._driver = driver
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        threading.Thread(target=self._serve, daemon=True).start()

    def stop(self) -> None:
        """Stop it."""
        self._goes_on.clear()

    def go_on(self) -> None:
        """Let it go on."""
        self._goes_on.set()

    def stand_still(self) -> None:
        """Wait while it is stopped."""
        self._goes_on.wait()

    def _serve(self) -> None:
        with self._listener:
            task, _ = self._listener.accept()
        # Without a driver, the task finds its connection closed.
        with task, suppress(ConnectionRefusedError), socket.create_connection(self._driver) as driver:
            answers = threading.Thread(target=self._pass_on, args=[driver, task], daemon=True)
            answers.start()
            self._pass_on(task, driver)
            answers.join()

    def _pass_on(self, from_: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := from_.recv(1 << 16):
                self.stand_still()
                to.sendall(data)
        self.stand_still()
        hang_up(to)
