"""How little memory a process keeps for threads that come and go."""

import subprocess
import sys

import pytest

from everkept.core.runtime import MAX_ARENAS, keep_heaps_small, return_freed_memory

# Threads that allocate side by side; the C library then lists its heaps.
ALLOCATE = """
import ctypes, sys, threading
from everkept.core.runtime import keep_heaps_small
if "limited" in sys.argv:
    keep_heaps_small()
library = ctypes.CDLL(None)
together = threading.Barrier(8)

def allocate():
    together.wait()
    library.malloc(1000)
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
library.malloc_stats()
"""


def count_heaps(*arguments: str) -> int:
    command = [sys.executable, "-c", ALLOCATE, *arguments]
    ended = subprocess.run(command, capture_output=True, check=True, encoding="utf-8", timeout=60)
    return ended.stderr.count("Arena ")


@pytest.mark.parametrize("call", [keep_heaps_small, return_freed_memory])
def test_every_system_can_be_asked(call: object) -> None:
    assert callable(call)
    call()


def test_threads_share_few_heaps() -> None:
    if sys.platform == "linux":
        assert count_heaps("limited") <= MAX_ARENAS < count_heaps()
