"""Memory that was freed goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Blocks that are below the size from which each is mapped by itself, with small ones in use between them.
FREE_MOST = """
import sys
from tocsin.runtime.host.allocator import Allocator, _held
allocator = Allocator() if sys.argv[1] == "with" else None
blocks = [b"x" * (100_000 if number % 2 else 3_000) for number in range(2_000)]
blocks[1::2] = [None] * 1_000
if allocator is not None:
    allocator.give_back()
print(_held())
"""


def held(mode: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", FREE_MOST, mode], capture_output=True, check=True, timeout=60
    )
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="without glibc nothing is given back")
def test_pages_between_blocks_in_use_are_given_back() -> None:
    assert held("with") < held("without") - (64 << 20)
