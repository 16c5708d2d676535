import pytest

from recollect.families.history.importing.problems import has_fix, has_problem


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):\n  File x",
        "TypeError: unsupported operand",
        "java.lang.NullPointerException: oops",
        "Error: connect ECONNREFUSED",
        "error[E0382]: borrow of moved value",
        "panic: runtime error",
        "The build fails on Windows.",
        "tests failed again",
        "Why does the cart test fail?",
        "It does not work on my machine.",
        "The import doesn't work.",
        "I get an error when I log in",
        "it crashes at start",
        "The page is broken since yesterday",
        "exit code 1",
        "3 failed, 20 passed",
        "There is a bug in the parser.",
        "cannot find module 'x'",
        "ModuleNotFoundError: No module named 'x'",
        "the request timed out",
        "[error] permission denied: that is the same error",
        "[error] permission denied\nError: nope",
        "We have a memory leak.",
        "It throws an exception.",
    ],
)
def test_what_goes_wrong_is_a_problem(text: str) -> None:
    assert has_problem(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Add error handling to the client.",
        "All 20 passed, 0 failed.",
        "It ran without errors.",
        "No tests failed.",
        "If the call fails, retry.",
        "It must not fail on empty input.",
        "Write a class for the errors of the API.",
        "How do I sort a list?",
        "The bug tracker is at example.org.",
        "It should never crash.",
        "Raise ValueError for it",
        "exit code 0",
        "Rename the failure page.",
    ],
)
def test_what_only_sounds_like_it_is_none(text: str) -> None:
    assert not has_problem(text)


@pytest.mark.parametrize(
    "text",
    [
        "Fixed.",
        "Fixed it by closing the file.",
        "That is fixed now.",
        "I've fixed the race.",
        "The test now passes.",
        "All tests pass.",
        "All 42 tests are green.",
        "The cause was a stale cache.",
        "Root cause of the crash: a missing lock.",
        "This is resolved.",
        "It works now.",
        "Works again, thanks!",
        "That did the trick.",
        "The problem was the time zone.",
        "It turned out that the port was taken.",
        "The fix is to await it.",
        "It no longer crashes.",
        "Solved: the path was wrong",
    ],
)
def test_what_was_put_right_is_a_fix(text: str) -> None:
    assert has_fix(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Is it fixed?",
        "It is not fixed yet.",
        "This has to be fixed.",
        "The bug must be fixed.",
        "Use a fixed width font.",
        "If it is resolved, tell me.",
        "The promise is never resolved.",
        "Does it work now?",
        "Can you fix it?",
        "```\nprint('fixed it')\n```",
        "Once that is solved we go on.",
    ],
)
def test_what_is_yet_to_be_put_right_is_none(text: str) -> None:
    assert not has_fix(text)


def test_long_texts_are_read_too() -> None:
    assert not has_problem("a b " * 50_000)
    assert not has_fix("the the " * 50_000)
