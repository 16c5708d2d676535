from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.text import find_forbidden
from everkept.hooks.events import HookEvent
from everkept.hooks.shell_commands import (
    MAX_ERROR_LINES,
    MAX_LINE_CHARACTERS,
    compute_signatures,
    extract_error_lines,
    find_outcome,
)


def ran(response: Any, **more: Any) -> HookEvent:
    fields = {"tool": "Bash", "tool_input": {"command": "x"}, "tool_response": response}
    return HookEvent("PostToolUse", **(fields | more))


def failed(event: HookEvent, purpose: str | None = None) -> bool | None:
    outcome = find_outcome(event, purpose)
    return None if outcome is None else outcome.failed


def test_what_a_client_calls_a_failure_is_one() -> None:
    assert failed(HookEvent("PostToolUseFailure", error="Exit code 2\nboom")) is True
    assert failed(ran({"stdout": "", "stderr": "boom", "exit_code": 1})) is True
    assert failed(ran({"stdout": "", "is_error": True})) is True
    assert failed(ran([{"type": "text", "text": "fine"}])) is False
    assert failed(ran({"stdout": "1 failed", "exitCode": 0})) is False


@pytest.mark.parametrize(
    "event",
    [
        ran({"stdout": "1 failed", "interrupted": True}),
        HookEvent("PostToolUseFailure", error="Exit code 1", is_interrupt=True),
        HookEvent("PostToolUseFailure", error="Exit code 130"),
        HookEvent("PostToolUseFailure", error="The user doesn't want to proceed with this tool use"),
        HookEvent("PostToolUseFailure", error="Permission to use Bash has been denied."),
        ran({"stdout": "", "backgroundTaskId": "b1"}),
        ran("", tool_input={"command": "x", "run_in_background": True}),
    ],
)
def test_what_was_stopped_refused_or_goes_on_is_neither(event: HookEvent) -> None:
    assert find_outcome(event, "test") is None


@pytest.mark.parametrize(
    "output",
    [
        "==== 1 failed, 12 passed in 0.5s ====",
        "Tests:       2 failed, 3 passed, 5 total",
        "  3 failing",
        "Found 3 errors in 1 file",
        "FAILED (failures=1)\n",
        "--- FAIL: TestLogin (0.00s)",
        "npm ERR! code ELIFECYCLE",
        "make: *** [all] Error 2",
        "error[E0308]: mismatched types\n",
        "[INFO] BUILD FAILED",
        "Traceback (most recent call last):\n  File x\nValueError: no",
    ],
)
def test_a_pipe_does_not_hide_that_tests_or_a_build_failed(output: str) -> None:
    assert failed(ran({"stdout": output, "stderr": ""}), "test") is True
    assert failed(ran({"stdout": output}), "build") is True
    assert failed(ran({"stdout": output}), "install") is False
    assert failed(ran({"stdout": output})) is False


@pytest.mark.parametrize(
    "output",
    [
        "==== 13 passed, 1 xfailed in 0.5s ====",
        "ok  \tshop/login\t0.01s",
        "Ran 3 tests\n\nOK",
        "3 passed\nlog: Traceback (most recent call last):\n",
        "Traceback (most recent call last):\nValueError: in a log\n=== 3 passed ===",
        "test result: ok. 4 passed; 0 failed; 0 ignored",
        "Found 0 errors",
    ],
)
def test_tests_that_say_they_passed_have_passed(output: str) -> None:
    assert failed(ran({"stdout": output}), "test") is False


def test_the_lines_that_tell_why_are_found_among_many() -> None:
    output = (
        "collected 2 items\n\n"
        "    def test_login():\n>       assert limit == 5\nE       assert 3 == 5\n"
        "\x1b[31mFAILED tests/test_login.py::test_login - assert 3 == 5\x1b[0m\n"
        "=== 1 failed in 0.1s ===\n"
    )
    event = HookEvent("PostToolUseFailure", error=f"Exit code 1\n{output}")
    outcome = find_outcome(event, "test")
    assert outcome is not None
    assert extract_error_lines(outcome.output) == [
        "E       assert 3 == 5",
        "FAILED tests/test_login.py::test_login - assert 3 == 5",
        "=== 1 failed in 0.1s ===",
    ]


def test_without_telling_lines_the_last_ones_are_taken() -> None:
    assert extract_error_lines("Exit code 3\na\nb\n\nc\nd\n") == ["b", "c", "d"]
    assert extract_error_lines("") == []


def test_a_failure_is_known_again_whatever_its_numbers() -> None:
    first = ["TypeError: bad value at line 12 of login.py", "=== 1 failed in 0.1s ==="]
    again = ["TypeError: bad value at line 40 of login.py", "=== 1 failed in 9.9s ==="]
    assert compute_signatures(first) == compute_signatures(again) != set()
    assert compute_signatures(["boom", "=== 2 failed in 1s ===", "Tests: 1 failed, 3 passed"]) == set()
    assert compute_signatures(["migration 0042 failed: no such column"]) != set()


@given(st.text(max_size=200), st.integers(0, 400))
def test_an_output_of_any_length_gives_few_short_lines(text: str, times: int) -> None:
    event = ran({"stdout": (text + "\nError: it broke\n") * times, "exit_code": 1})
    outcome = find_outcome(event, None)
    assert outcome is not None
    lines = extract_error_lines(outcome.output)
    assert len(lines) <= MAX_ERROR_LINES
    assert all(0 < len(line) <= MAX_LINE_CHARACTERS for line in lines)
    assert not any(find_forbidden(line) for line in lines)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["stdout", "exit_code", "content", "interrupted", "is_error"]), inner)
        ),
    )
)
def test_a_response_of_any_shape_is_read(response: Any) -> None:
    outcome = find_outcome(ran(response, folder=Path("x")), "test")
    assert outcome is None or isinstance(outcome.output, str)
