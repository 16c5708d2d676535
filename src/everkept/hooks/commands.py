"""A command of a shell: what it is for, how it ended, and which lines of its output say why."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PureWindowsPath
from typing import Any, cast

from everkept.hooks.events import HookEvent
from everkept.values import Value

LONGEST_READ = 10_000  # characters of a command
INSTALL, BUILD, TEST, DEPLOY, MIGRATE = "install", "build", "test", "deploy", "migrate"

_HEREDOC = re.compile(r"(?<!<)<<-?[ \t]*(['\"]?)(?P<end>\w+)\1")  # what ends it stands alone
_TOKEN = re.compile(
    r"(?P<redirection>\d?>&\d|&>>?|\d?>>?|<)"
    r"|(?P<operator>&&|\|\||[;|&\n])"
    r"|(?P<blank>[^\S\n]+)"
    r"|(?P<word>(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|[^\s'\"&|;<>\\])+|.)",
    re.DOTALL,
)
_ASSIGNMENT = re.compile(r"\w+=")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# What runs another program, with how many words of its own.
_WRAPPERS = {
    "sudo": 1,
    "env": 1,
    "time": 1,
    "nohup": 1,
    "command": 1,
    "npx": 1,
    "bunx": 1,
    "timeout": 2,
}
_RUNNERS = {
    ("uv", "run"),
    ("poetry", "run"),
    ("pipenv", "run"),
    ("pdm", "run"),
    ("hatch", "run"),
    ("rye", "run"),
    ("bundle", "exec"),
    ("pnpm", "exec"),
    ("pnpm", "dlx"),
    ("yarn", "dlx"),
}
_PYTHON = re.compile(r"(?:python|py)[\d.]*")

# What only looks around or tidies up: that it fails tells nothing, and that it works neither.
_TRIVIAL = _set(
    "awk basename cat cd chmod clear cmp column cp cut date diff dir dirname du echo egrep env"
    " export false fd fgrep file find grep head hostname id jq kill less ln ls lsof md5sum mkdir"
    " more mv nl pgrep pkill printenv printf ps pwd read readlink realpath rg rm rmdir sed seq set"
    " sha256sum sleep sort source stat tac tail tee test touch tr tree true type uname uniq wait"
    " wc where which whoami xargs yq [ [["
)
# What ends a script: it says that something failed, and not what.
_ENDING = _set("exit logout return")
_LOOKING_AT_GIT = _set(
    "blame branch check-ignore config describe diff grep log ls-files ls-remote merge-base reflog"
    " remote rev-list rev-parse shortlog show show-ref status tag"
)
_CMDLETS = ("get-", "select-", "test-", "write-", "measure-", "format-", "where-", "out-")

# The first words of commands that do something; a further one is one of these, or anything.
_PACKAGES = {"install", "i", "add", "ci", "sync", "get", "update", "upgrade", "require", "restore"}
_INSTALLERS = _set(
    "apk apt apt-get brew bun bundle cargo choco composer conda dnf dotnet gem go mamba npm pacman"
    " pdm pip pip3 pipx pnpm poetry scoop uv winget yarn yum"
)
_TESTERS = _set(
    "ava behave cypress ctest jest karma mocha nose2 nox phpunit playwright pytest rspec tap tox"
    " unittest vitest"
)
_BUILDERS = _set(
    "bazel cmake esbuild gradle gradlew make meson mvn mvnw ninja rollup scons tsc vite webpack"
    " xcodebuild"
)
_CONTAINERS = {"docker", "docker-compose", "podman", "nerdctl"}
_OF_CONTAINERS = {"build", "buildx", "compose", "create", "down", "pull", "push", "run", "up"}
_CLOUDS = {"terraform", "tofu", "cdk", "pulumi", "serverless", "sls"}
_OF_CLOUDS = {"apply", "bootstrap", "deploy", "destroy", "import", "init", "plan", "synth", "up"}
_CLUSTERS = {"kubectl": {"apply", "rollout", "create", "delete"}, "helm": {"install", "upgrade"}}
_MIGRATORS = {"alembic", "flyway", "liquibase", "goose", "dbmate"}
_SCRIPTED = {"npm", "pnpm", "yarn", "bun", "make", "just", "task", "rake", "composer", "deno"}
_LANGUAGES = {"cargo", "dotnet", "go", "swift", "zig", "mix", "sbt", "lein", "stack", "cabal"}
_PIECES = re.compile(r"[-_:./]")
_HERE = "./"


class _Simple(Value):
    """One program with its words, and what stands between it and the one before."""

    operator: str
    words: tuple[str, ...]

    @property
    def called(self) -> tuple[str, ...]:
        """The words from the program on that does the work; it goes by its bare name."""
        words = self.words
        while words:
            name = _bare(words[0])
            if _ASSIGNMENT.match(words[0]):
                words = words[1:]
            elif name in _WRAPPERS and len(words) > _WRAPPERS[name]:
                words = words[_WRAPPERS[name] :]
            elif len(words) > 2 and _runs(name, words[1]):
                words = words[2:]
            else:
                return (name, *words[1:])
        return ()

    @property
    def is_trivial(self) -> bool:
        name, *rest = self.called or ("true",)
        if name == "git":
            return next((w for w in rest if not w.startswith("-")), "status") in _LOOKING_AT_GIT
        return name in _TRIVIAL or name.startswith(_CMDLETS)

    @property
    def is_telling(self) -> bool:
        """Whether one knows by it what was run."""
        return not self.is_trivial and self.called[0] not in _ENDING


def essence(command: str) -> str:
    """What is run, on one line: without where, and without what becomes of the output.

    All of it, where nothing in it does more than look around, tidy up or end.
    """
    parts = _simples(command)
    if any(part.is_telling for part in parts):
        while not parts[0].is_telling:
            del parts[0]
        while parts[-1].operator != "&&" and not parts[-1].is_telling:
            del parts[-1]
    words = [word for part in parts for word in (part.operator, *part.words)]
    return " ".join(words[1:])  # what stands before the first one joins it to nothing


def is_trivial(command: str) -> bool:
    """Whether nothing in it does more than look around or tidy up."""
    return all(part.is_trivial for part in _simples(command))


def purpose(command: str) -> str | None:
    """What the first part of it is for that is for anything we know: to test, to deploy, …"""
    return next(filter(None, (_purpose(part) for part in _simples(command))), None)


def _simples(command: str) -> list[_Simple]:
    text = _without_heredocs(command[:LONGEST_READ].replace("\\\n", " "))
    found: list[_Simple] = []
    words: list[str] = []
    operator, is_target = "", False
    for token in _TOKEN.finditer(text):
        if token["operator"]:
            found += [_Simple(operator, tuple(words))] if words else []
            operator, words = (";" if token["operator"] == "\n" else token["operator"]), []
        elif token["word"]:
            words += [] if is_target else [token["word"]]
        if not token["blank"]:
            is_target = bool(token["redirection"]) and "&" not in token["redirection"][1:]
    return [*found, _Simple(operator, tuple(words))] if words else found


def _without_heredocs(text: str) -> str:
    """Lines that are the input of a program are no commands; all are looked at once."""
    lines = text.split("\n")
    last_place = {line.strip(): number for number, line in enumerate(lines)}
    kept: list[str] = []
    ends: list[str] = []
    for number, line in enumerate(lines):
        if ends:
            ends = ends[1:] if line.strip() == ends[0] else ends
            continue
        begun = [found["end"] for found in _HEREDOC.finditer(line)]
        ends = [end for end in begun if last_place.get(end, -1) > number]
        kept.append(_HEREDOC.sub("", line) if ends else line)
    return "\n".join(kept)


def _purpose(part: _Simple) -> str | None:
    if part.is_trivial or not part.called:
        return None
    script, *rest = part.called
    program = script.removeprefix(_HERE)
    words = [word.strip("'\"").lower() for word in rest if not word.startswith("-")]
    first = words[0] if words else ""
    named = {piece for word in (program, *_target(words)) for piece in _PIECES.split(word)}
    has_targets = script != program or program in _SCRIPTED | _LANGUAGES | _BUILDERS
    if program in _INSTALLERS and _PACKAGES & set(words[:2]):
        return INSTALL
    if program in _MIGRATORS or "migrate" in named | set(words[:2]):
        return MIGRATE
    if program in _CONTAINERS and first in _OF_CONTAINERS:
        return "docker"
    if program in _CLOUDS and first in _OF_CLOUDS - {"deploy"}:
        return program
    if "deploy" in named or first in _CLUSTERS.get(program, ()):
        return DEPLOY
    if program in _TESTERS or (has_targets and {"test", "tests"} & named):
        return TEST
    if program in _BUILDERS or (has_targets and {"build", "compile"} & named):
        return BUILD
    return None


def _runs(program: str, word: str) -> bool:
    """Whether what follows these two is the program that does the work."""
    return (program, word) in _RUNNERS or bool(_PYTHON.fullmatch(program) and word == "-m")


def _target(words: Sequence[str]) -> Sequence[str]:
    """The script or target that is run."""
    return words[1:2] if words[:1] in (["run"], ["run-script"]) else words[:1]


def _bare(word: str) -> str:
    """A program by its name: `.venv/bin/python` is python, and `C:\\git.exe` git.

    A script of the working folder is told from a program of the same name.
    """
    word = word.strip("'\"")
    name = PureWindowsPath(word).name.lower().removesuffix(".exe").removesuffix(".cmd")
    return f"{_HERE}{name}" if word.startswith(("./", ".\\")) else name or word


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
