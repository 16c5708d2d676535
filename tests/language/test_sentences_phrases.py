import pytest

from everkept.language.sentences import has_fix, has_problem, is_decision


@pytest.mark.parametrize(
    "text",
    [
        "We decided to use SQLite.",
        "we've decided against a queue",
        "After the spike we finally decided on Postgres.",
        "We have agreed that ids stay stable.",
        "It was decided that the API returns 404.",
        "Let's go with the second option.",
        "OK, let\u2019s go with JWT.",
        "Let's stick with plain JSON for now.",
        "Good. Let's use ruff.",
        "Let us switch to pnpm.",
        "I'll use httpx rather than requests.",
        "We use UUIDs instead of counters.",
        "Use Postgres instead of MySQL.",
        "So we will store times in UTC instead of local time.",
        "I'd say both work, but I'll go with the simple one.",
        "Agreed: one file per family.",
        "Agreed, we keep the old names.",
        "Decision: no retries in the client.",
        "**Decision:** rate limits live in the gateway.",
        "The decision is to drop Python 3.10.",
        "Our decision was to ship without it.",
        "The final decision stands: no telemetry.",
        "Going with option B.",
        "We're going with Redis here.",
        "I chose argon2 over bcrypt.",
        "We opted for a single table.",
        "In the end they settled on GraphQL.",
        "From now on, every migration has a test.",
        "The choice fell on Rust.",
        "We've made the decision: the parser stays hand-written.",
        "I'm going to go with a frozen dataclass.",
        "We'll keep the two-space indent.",
        "You're right, let's drop the cache.",
        "Should it be Redis? No: we decided to stay with memory.",
        "- Let's not support Windows 7",
        "```py\nx\n```\nLet's go with this.",
        "SQLite instead of Postgres.",
        "Yes. Redis Streams rather than Kafka!",
        "- Argon2 instead of bcrypt",
        "I'd go with X instead of Y.",
        "I\u2019d use a set rather than a list here.",
    ],
)
def test_a_choice_that_was_made_is_a_decision(text: str) -> None:
    assert is_decision(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Should we go with SQLite?",
        "Shall we use Redis instead of Postgres?",
        "Have we decided on a name?",
        "What if we go with option B?",
        "If that fails, let's go with plan B.",
        "Maybe we should use Go instead of Rust.",
        "We could go with either.",
        "I would go with the first one.",
        "We have not decided on this yet.",
        "We haven't agreed on the format.",
        "Nobody agreed to that.",
        "Before we decide on it, show me the numbers.",
        "Not sure whether we settled on tabs.",
        "The function returns None instead of raising.",
        "It printed 3 instead of 4.",
        "Returns None instead of raising.",
        "SQLite instead of Postgres?",
        "The page shows Foo instead of Bar.",
        "If SQLite instead of Postgres is fine, say so.",
        "I'll use the Read tool to look at the file.",
        "```\n# we decided to use X\n```",
        "The comment says `we decided to use X`.",
        'He wrote "let\'s go with B" in the title.',
        "> We decided to use X.",
        "Please explain how decisions are made here.",
        "The decision tree has depth 4.",
        "Let's look at the tests first.",
        "Let's see what happens.",
        "Imagine we decided to drop it.",
        "Why did we go with Kafka?",
        "Suppose we use a set instead of a list.",
        "I agreed with him about lunch.",
        "Can you decide?",
        "When we decided on the name, it rained.",
        "for example, let's go with `x`",
    ],
)
def test_questions_thoughts_and_quotations_are_none(text: str) -> None:
    assert not is_decision(text)


def test_a_long_text_without_an_end_of_sentence_is_read() -> None:
    assert is_decision("word " * 20_000 + "\nwe decided to stop")
    assert not is_decision("we " * 50_000)


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
