"""Every regular expression of the package takes steps in proportion to the text, whatever the text is."""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pytest

from everkept.core.secrets import mask_text
from package_patterns import PackagePattern, list_patterns
from pattern_steps import StepCounter, TooManySteps

# Patterns that read only text of our own, or few characters of others' texts.
SHORT_TEXTS = {
    "settings.config_file._DESCRIBED",  # the source of the settings
    "language.question_forms.list_question_forms",  # the beginning of a question; see `retrieval/intent.py`
}

T = TypeVar("T")

FEW, MANY = 10, 40  # repetitions of a piece
MAX_STEPS = 100_000
SLACK = 1.5  # a constant start of each text may take steps too
SHAPES = ("a", " ", "\n", "a ", "1", "-", ".", "/a", '"', "a.", "A", "=", "<a", "(", "*", "_a", ": ", "a\n", "a?")

HOSTILE = (
    *SHAPES,
    "password:",
    "password is ",
    "password for a ",
    "token='",
    "://a:",
    "://a:b@",
    "curl -u a:",
    "curl mysql -p ",
    "mysql '",
    "eyJaaaaaaaaa.",
    "sk--",
    "pypi-xxxx-",
    "AKIAABCDEFGHIJKLMNOP ",
    "machine x login ",
    "[masked: a]",
    "-----BEGIN " + "PRIVATE KEY-----",
    "bearer ",
    "sig=",
    "hooks.slack.com/services/",
    "$6$a",
    "~~Q~",
    "as the password ",
    "pass",
    "echo a | ",
    "net use a ",
    ":AA",
)


def test_the_patterns_that_read_prompts_and_memories_are_linear() -> None:
    patterns = list_patterns(("core.secret", "language.code_names", "hooks.prompts"))
    assert len(patterns) > 60
    assert _run_deep(lambda: _find_slow(patterns, ())) == []


@pytest.mark.thorough
def test_every_pattern_is_linear() -> None:
    assert _run_deep(lambda: _find_slow(list_patterns(), SHAPES)) == []


@pytest.mark.parametrize(
    ("pattern", "is_linear"),
    [
        (r"[a-z]+[a-z0-9]*[A-Z]", False),
        (r"(?:a+)+b", False),
        (r"\s+$", False),
        (r"[.\n]\s*add", False),
        (r"<.*>", False),
        (r"[a-z][a-z0-9]*+[A-Z]", False),
        (r"(?<![a-z0-9])[a-z][a-z0-9]*+[A-Z]", True),
        (r"(?<!\s)\s+$", True),
        (r"(?:ab|cd){0,200}e", True),
        (r"<[^<>]*>", True),
        (r"a\d+b", True),
    ],
)
def test_the_count_tells_slow_patterns_from_linear_ones(pattern: str, is_linear: bool) -> None:
    found = _run_deep(lambda: _find_slow([PackagePattern("here", pattern, 0, at_start=False)], SHAPES))
    assert bool(found) != is_linear


@pytest.mark.parametrize("piece", HOSTILE)
def test_masking_takes_calls_in_proportion_to_the_text(piece: str) -> None:
    few, many = (_count_calls(piece * (size // len(piece))) for size in (3_000, 12_000))
    assert many <= 4 * SLACK * few + 1_000


@pytest.mark.thorough
@pytest.mark.parametrize("piece", ["curl -u a:", "a", "://a:", "/a", "a "])
def test_masking_two_megabytes_takes_calls_in_proportion(piece: str) -> None:
    few, many = (_count_calls(piece * (size // len(piece))) for size in (200_000, 2_000_000))
    assert many <= 10 * SLACK * few + 1_000


def _count_calls(text: str) -> int:
    """The calls of functions, ours and those of the interpreter. Each reads a bounded piece, or is linear."""
    count = 0

    def note(*_: object) -> None:
        nonlocal count
        count += 1

    mask_text("password: hunter2 and " + "a" * 40)  # compiles
    sys.setprofile(note)
    try:
        mask_text(text)
    finally:
        sys.setprofile(None)
    return count


def _find_slow(patterns: Sequence[PackagePattern], shapes: Sequence[str]) -> list[str]:
    return [
        f"{each.place}: {each.pattern[:80]!r} with {hostile!r}"
        for each in patterns
        if each.place not in SHORT_TEXTS and (hostile := _find_hostile(each, shapes))
    ]


def _find_hostile(given: PackagePattern, shapes: Sequence[str]) -> tuple[str, str] | None:
    """Return the beginning and the piece of a text whose steps grow faster than its length."""
    counter = StepCounter(given.pattern, given.flags)
    for prefix, piece in dict.fromkeys([*counter.list_hostile(), *(("", shape) for shape in shapes)]):
        for few, many in zip(_build_texts(prefix, piece, FEW), _build_texts(prefix, piece, MANY), strict=True):
            try:
                steps = counter.count(few, MAX_STEPS, at_start=given.at_start)
                limit = int(SLACK * steps * (len(many) / len(few))) + 200
                counter.count(many, limit, at_start=given.at_start)
            except TooManySteps:
                return prefix, piece
    return None


def _build_texts(prefix: str, piece: str, count: int) -> Iterator[str]:
    yield prefix + piece * count + "\x00"
    yield (prefix + piece) * count + "\x00"
    yield piece * count + "\n~"


def _run_deep(work: Callable[[], T]) -> T:
    """Run in a thread with a large stack, since the matcher recurses once for each repetition of a group."""
    results: list[T] = []
    size, depth = threading.stack_size(256 * 1024 * 1024), sys.getrecursionlimit()
    sys.setrecursionlimit(50_000)
    try:
        thread = threading.Thread(target=lambda: results.append(work()))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)
        sys.setrecursionlimit(depth)
    return results[0]
