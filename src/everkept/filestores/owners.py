"""Who a process is among all that may share a folder, and whether it still runs."""

import os
import sys
from functools import lru_cache
from pathlib import Path


@lru_cache(1)
def this_machine() -> str:
    """Equal only where process numbers mean the same processes.

    Containers have numbers of their own and may share a host name, and numbers begin anew with
    each start of a machine; both make another machine of it.
    """
    import socket

    return f"{socket.gethostname()}/{_numbering()}"


def _numbering() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot[:8]}-{Path('/proc/self/ns/pid').stat().st_ino:x}"
    except OSError:  # no Linux
        import uuid

        return f"{uuid.getnode():x}"


if sys.platform == "win32":

    def is_running(pid: int) -> bool:
        # os.kill would end the process here.
        import ctypes

        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        query_limited, still_active, access_denied = 0x1000, 259, 5
        handle = kernel.OpenProcess(query_limited, False, pid)
        if not handle:
            return ctypes.get_last_error() == access_denied
        try:
            code = ctypes.c_ulong()
            known = kernel.GetExitCodeProcess(handle, ctypes.byref(code))
            return not known or code.value == still_active
        finally:
            kernel.CloseHandle(handle)

else:

    def is_running(pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except (PermissionError, OverflowError):  # another user's, or no number we can ask for
            return True
        return True
