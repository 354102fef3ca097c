"""
Spark's daemon of Python workers, with everything in memory that a task of a mirror needs.

Spark starts the daemon by ``spark.python.daemon.module``, and the daemon forks a worker for each task that
runs at a time. Workers of PySpark's own daemon each import 500 modules, and generate code for Kafka's
messages: 0.5 CPU-seconds and 40 MB each. From this daemon they inherit both, and share the memory.

Spark puts the zip files of PySpark and Py4J first on the path of its Python. Every start compiles each module
that it imports from them: 0.8 CPU-seconds. The daemon imports the installed packages, as the driver does.

No module here starts a thread: a thread does not survive the fork.
"""

from __future__ import annotations

import gc
import re
import sys

sys.path[:] = [each for each in sys.path if not re.search(r"\b(pyspark|py4j-[\w.]+-src)\.zip$", each)]

# ruff: noqa: E402
import pyspark.worker  # noqa: F401 (a worker imports it first)
from pyspark.daemon import manager

import shoal.mirroring.task.task
import shoal.spark.copy_task  # noqa: F401 (a pickled task imports it)
from shoal.protocol.apis import CLIENT_VERSIONS, ApiKey
from shoal.protocol.codec import generate_code

#: The requests of a task, in the versions that a new broker takes.
_OF_A_TASK = (
    ApiKey.API_VERSIONS,
    ApiKey.METADATA,
    ApiKey.FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_COMMIT,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.INIT_PRODUCER_ID,
)

if __name__ == "__main__":
    for api_key in _OF_A_TASK:
        generate_code(api_key, CLIENT_VERSIONS[api_key][1])
    gc.collect()
    # The collector neither walks these objects nor writes to their memory, which workers share.
    gc.freeze()
    manager()
