"""Memory that was freed goes back to the system, so that what a process holds is near what it uses.

The allocator of glibc keeps a freed block if a block in use lies above it. After minutes of messages from a few bytes
to a megabyte that was more than all that was in use. Two remedies: large blocks are mapped each by itself, and go when
they are freed; and of the rest, whole pages are given back now and then. With another C library nothing is done.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

# Constants of glibc's malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8

# From here on a block is mapped by itself. More than one read from a socket (256 KiB), which comes too often for it.
MAPPED_FROM_BYTES: Final = 512 << 10
TOP_KEPT_BYTES: Final = 16 << 20  # free at the end of the heap, before it is shortened
ARENAS: Final = 2  # heaps: threads are few, and share them
WORTH_BYTES: Final = 16 << 20  # above what the process held at first; less is not worth the look (about 1 ms)

_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = 4_096


class Allocator:
    """The allocator of this process, if it is glibc's."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        self._libc = libc if hasattr(libc, "malloc_trim") and _STATM.exists() else None
        self._at_first = _held() if self._libc is not None else 0
        if self._libc is not None:
            self._libc.mallopt(_MMAP_THRESHOLD, MAPPED_FROM_BYTES)
            self._libc.mallopt(_TRIM_THRESHOLD, TOP_KEPT_BYTES)
            self._libc.mallopt(_ARENA_MAX, ARENAS)

    def give_back(self) -> None:
        """Give whole pages that are free back to the system, if the process holds more than at first."""
        if self._libc is not None and _held() > self._at_first + WORTH_BYTES:
            self._libc.malloc_trim(0)


def _held() -> int:
    return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES
