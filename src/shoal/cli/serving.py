"""Files and memory of a verb that serves many clients."""

from __future__ import annotations

import ctypes
import os
import resource

__all__ = ["allow_many_files", "give_freed_memory_back"]

#: Settings of glibc's allocator: the environment variable, the parameter (malloc.h) and the value. By
#: default, once an allocation of up to 32 MiB was freed, the next one of that size comes from a thread's
#: arena. There are eight arenas for each core, and they keep freed memory.
_MALLOC = (
    ("MALLOC_MMAP_THRESHOLD_", -3, 1 << 20),
    ("MALLOC_TRIM_THRESHOLD_", -1, 1 << 20),
    ("MALLOC_ARENA_MAX", -8, 2),
)


def allow_many_files() -> None:
    """Raise the limit of open files, such as connections, above the usual 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def give_freed_memory_back() -> None:
    """
    Let glibc return large allocations to the system when they are freed. Without glibc, do nothing.

    Environment variables of mallopt(3) win.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for variable, parameter, value in _MALLOC:
        if mallopt is not None and variable not in os.environ:
            mallopt(parameter, value)
