"""How a command ended, and which lines of its output tell why."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from everkept.hooks.model import HookEvent
from everkept.hooks.noticing.commands import BUILD, TEST
from everkept.values import Value

FAILURE = "PostToolUseFailure"
MOST_READ_FIRST, MOST_READ_LAST = 4_000, 16_000  # characters of an output
MOST_LINES = 6
FALLBACK_LINES = 3  # the last ones, where none is telling
LONGEST_LINE = 200  # characters
MOST_OF_A_LINE = 1_000  # characters that are read of it
INTERRUPTED = (130, 143)  # exit codes of a program that was told to stop
FEWEST_WORDS = 3  # of a line that tells one failure from others

_EXIT_CODE = re.compile(r"\bexit(?:ed with)?(?: code| status)?:?\s+(\d{1,10})\b", re.IGNORECASE)
_EXIT_LINE = re.compile(r"^(?:Error: )?Exit code:? \d+$", re.IGNORECASE)
# Nothing was run: a person or a rule did not want it.
_UNWANTED = re.compile(
    r"doesn't want to (?:proceed|take this action)|Request interrupted|Permission to use"
    r"|denied by|blocked by|hook error",
    re.IGNORECASE,
)
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")

_COUNTED = r"\b[1-9]\d* (?:failed|failures?|failing|errors?)\b|\b(?:failures|errors|failed): *[1-9]"
# A run of tests or a build that says so itself, also where a pipe hides its exit code.
_SAYS_SO = re.compile(
    rf"{_COUNTED}|^FAILED\b|^FAIL\b|^--- FAIL|\bBUILD FAILED\b|\bBuild failed\b|^npm (?:ERR!|error)"
    r"|^make(?:\[\d+\])?: \*\*\*|^error(?:\[\w+\])?:|^Traceback \(most recent call last\)|^panic:",
    re.MULTILINE,
)
_SAYS_ALL_IS_WELL = re.compile(
    r"\b[1-9]\d* passed\b|\b0 (?:failed|failures|errors)\b|^OK\b|^ok\s|\btest result: ok\b"
    r"|\bBUILD SUCCESS|\bBuild succeeded\b|\bpassing\b",
    re.MULTILINE,
)
_FAILED_SOME = re.compile(_COUNTED)
_TELLING = re.compile(
    r"^E {2,}\S|\b\w*(?:Error|Exception)\b *[:(]|\berror(?:\[\w+\]| [a-z]+\d+)?:|^error\b|\bfatal:"
    r"|\bpanic(?:ked)?\b|^FAIL(?:ED)?\b|^--- FAIL|^npm (?:ERR!|error) (?!A complete log)|\*\*\* "
    rf"|\bBUILD FAILED\b|{_COUNTED}|\bcannot\b|\bnot found\b|\bno such\b|\bdenied\b|\bundefined\b"
    r"|\btimed out\b|\brefused\b|^[✕✗×] ",
    re.IGNORECASE,
)
_SUM = re.compile(r"(?:^|[=:;,.]) *0 failed\b")  # how many did, whatever the number is
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+", re.IGNORECASE)


class Outcome(Value):
    failed: bool
    output: str


def outcome_of(event: HookEvent, purpose: str | None) -> Outcome | None:
    """None where nothing can be said: it was interrupted, refused, or goes on by itself."""
    answer = _fields(event.tool_response)
    output = cleaned(event.error or _text(event.tool_response))
    if event.is_interrupt or answer.get("interrupted") or _goes_on(event, answer):
        return None
    code = _code(answer, output, has_failed=event.name == FAILURE)
    if code in INTERRUPTED or (event.name == FAILURE and code is None and _UNWANTED.search(output)):
        return None
    is_error = answer.get("is_error") is True or answer.get("isError") is True
    has_failed = event.name == FAILURE or is_error or bool(code)
    return Outcome(has_failed or _says_so(output, purpose), output)


def telling_lines(output: str) -> list[str]:
    """The few lines of an output that say what went wrong, each at most so long."""
    lines = [line.strip()[:MOST_OF_A_LINE] for line in output.splitlines()]
    lines = [line for line in lines if line and not _EXIT_LINE.match(line)]
    telling = list(dict.fromkeys(line for line in lines if _TELLING.search(line)))
    if not telling:
        telling = lines[-FALLBACK_LINES:]
    elif len(telling) > MOST_LINES:
        half = MOST_LINES // 2  # a compiler says it first, a traceback last
        telling = [*telling[:half], *telling[-half:]]
    return [_clipped(line) for line in telling]


def signatures(lines: Iterable[str]) -> set[str]:
    """By which a failure is known again; line numbers, addresses and times do not count."""
    plain = (_NUMBERS.sub("0", line).lower().strip() for line in lines)
    known = (line for line in plain if not _SUM.search(line))
    return {line for line in known if len(line.split()) >= FEWEST_WORDS}


def cleaned(output: str) -> str:
    """The beginning and the end of an output, in whole lines and without colours."""
    if len(output) > MOST_READ_FIRST + MOST_READ_LAST:
        first = output[:MOST_READ_FIRST].rpartition("\n")[0]
        last = output[-MOST_READ_LAST:].partition("\n")[2]
        output = f"{first}\n{last}"
    return _CONTROL.sub("", _COLOURS.sub("", output))


def _fields(response: Any) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], response) if isinstance(response, Mapping) else {}


def _text(response: Any) -> str:
    """What was printed, in whichever form a client hands it on."""
    if isinstance(response, str):
        return response
    if isinstance(response, Mapping):
        fields = cast(Mapping[str, Any], response)
        names = ("stdout", "stderr", "output", "content", "text", "error")
        return "\n".join(filter(None, (_text(fields.get(name)) for name in names)))
    if isinstance(response, Sequence) and not isinstance(response, bytes | bytearray):
        return "\n".join(filter(None, map(_text, cast(Sequence[Any], response))))
    return ""


def _goes_on(event: HookEvent, answer: Mapping[str, Any]) -> bool:
    return event.tool_input.get("run_in_background") is True or bool(answer.get("backgroundTaskId"))


def _code(answer: Mapping[str, Any], output: str, *, has_failed: bool) -> int | None:
    for name in ("exit_code", "exitCode", "returncode", "code"):
        if isinstance(given := answer.get(name), int) and not isinstance(given, bool):
            return given
    found = _EXIT_CODE.search(output[:LONGEST_LINE]) if has_failed else None
    return int(found[1]) if found else None


def _says_so(output: str, purpose: str | None) -> bool:
    if purpose not in (TEST, BUILD) or not _SAYS_SO.search(output):
        return False
    return bool(_FAILED_SOME.search(output)) or not _SAYS_ALL_IS_WELL.search(output)


def _clipped(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1].rstrip() + "…"
