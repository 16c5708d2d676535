import subprocess
import sys

from server_processes import HANG

# Nothing else of Python runs while the expression is looked at, and it takes for years.
HANGING = """
import re
from everkept.hooks.unhandled import end_after
end_after(0.1)
re.match("(a+)+$", "a" * 99 + "b")
"""
QUICK = f"""
from everkept.hooks.unhandled import end_after
end_after({HANG})
print("done")
"""


def ended(code: str) -> tuple[int, str, str]:
    process = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, encoding="utf-8", timeout=2 * HANG
    )
    return process.returncode, process.stdout, process.stderr


def test_a_process_ends_in_time_even_where_the_interpreter_hangs() -> None:
    assert ended(HANGING) == (1, "", "")


def test_a_process_that_is_quicker_ends_by_itself() -> None:
    assert ended(QUICK) == (0, "done\n", "")
