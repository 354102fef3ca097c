"""The first use of the protocol's messages, by several threads at the same time."""

from __future__ import annotations

import subprocess
import sys

_CHILD = """
import threading
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
apis, barrier, errors = list(ApiKey), threading.Barrier(8), []
def use(begin):
    barrier.wait()
    try:
        for number in range(len(apis)):
            request_class(apis[(begin + number) % len(apis)])
    except BaseException as error:
        errors.append(repr(error))
threads = [threading.Thread(target=use, args=(5 * number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(errors)
"""


def test_first_use_by_several_threads_loads_messages() -> None:
    # A process of its own, since a loaded module stays loaded.
    ended = subprocess.run([sys.executable, "-c", _CHILD], capture_output=True, text=True, timeout=60)
    assert (ended.stdout.strip(), ended.stderr) == ("[]", "")
