"""Analysis of a shell command: its purpose, its outcome, and the lines of its output that say why it failed."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PureWindowsPath
from typing import Any, cast

from everkept.hooks.events import HookEvent
from everkept.values import Value

MAX_COMMAND_CHARACTERS = 10_000
INSTALL, BUILD, TEST, DEPLOY, MIGRATE = "install", "build", "test", "deploy", "migrate"

_HEREDOC = re.compile(r"(?<!<)<<-?[ \t]*(['\"]?)(?P<end>\w+)\1")  # its end mark is alone on a line
_TOKEN = re.compile(
    r"(?P<redirection>\d?>&\d|&>>?|\d?>>?|<)"
    r"|(?P<operator>&&|\|\||[;|&\n])"
    r"|(?P<blank>[^\S\n]+)"
    r"|(?P<word>(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|[^\s'\"&|;<>\\])+|.)",
    re.DOTALL,
)
_ASSIGNMENT = re.compile(r"\w+=")


def _split_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Programs that run another program, with the number of words before its name.
_WRAPPERS = {"sudo": 1, "env": 1, "time": 1, "nohup": 1, "command": 1, "npx": 1, "bunx": 1, "timeout": 2}
_RUNNERS = {
    *((tool, "run") for tool in ("uv", "poetry", "pipenv", "pdm", "hatch", "rye")),
    *(("bundle", "exec"), ("pnpm", "exec"), ("pnpm", "dlx"), ("yarn", "dlx")),
}
_PYTHON = re.compile(r"(?:python|py)[\d.]*")

# Programs that only inspect or tidy up: neither their failure nor their success says anything.
_TRIVIAL = _split_set(
    "awk basename cat cd chmod clear cmp column cp cut date diff dir dirname du echo egrep env"
    " export false fd fgrep file find grep head hostname id jq kill less ln ls lsof md5sum mkdir"
    " more mv nl pgrep pkill printenv printf ps pwd read readlink realpath rg rm rmdir sed seq set"
    " sha256sum sleep sort source stat tac tail tee test touch tr tree true type uname uniq wait"
    " wc where which whoami xargs yq [ [["
)
# Commands that end a script: they show that something failed, but not what.
_EXIT_WORDS = _split_set("exit logout return")
_READ_ONLY_GIT = _split_set(
    "blame branch check-ignore config describe diff grep log ls-files ls-remote merge-base reflog"
    " remote rev-list rev-parse shortlog show show-ref status tag"
)
_TRIVIAL_CMDLETS = ("get-", "select-", "test-", "write-", "measure-", "format-", "where-", "out-")

# First words of commands that change something, with the second words that count, if limited.
_INSTALL_VERBS = {"install", "i", "add", "ci", "sync", "get", "update", "upgrade", "require", "restore"}
_INSTALLERS = _split_set(
    "apk apt apt-get brew bun bundle cargo choco composer conda dnf dotnet gem go mamba npm pacman"
    " pdm pip pip3 pipx pnpm poetry scoop uv winget yarn yum"
)
_TESTERS = _split_set(
    "ava behave cypress ctest jest karma mocha nose2 nox phpunit playwright pytest rspec tap tox unittest vitest"
)
_BUILDERS = _split_set(
    "bazel cmake esbuild gradle gradlew make meson mvn mvnw ninja rollup scons tsc vite webpack xcodebuild"
)
_CONTAINERS = {"docker", "docker-compose", "podman", "nerdctl"}
_CONTAINER_VERBS = {"build", "buildx", "compose", "create", "down", "pull", "push", "run", "up"}
_CLOUD_TOOLS = {"terraform", "tofu", "cdk", "pulumi", "serverless", "sls"}
_CLOUD_VERBS = {"apply", "bootstrap", "deploy", "destroy", "import", "init", "plan", "synth", "up"}
_CLUSTER_VERBS = {"kubectl": {"apply", "rollout", "create", "delete"}, "helm": {"install", "upgrade"}}
_MIGRATORS = {"alembic", "flyway", "liquibase", "goose", "dbmate"}
_SCRIPT_RUNNERS = {"npm", "pnpm", "yarn", "bun", "make", "just", "task", "rake", "composer", "deno"}
_LANGUAGE_TOOLS = {"cargo", "dotnet", "go", "swift", "zig", "mix", "sbt", "lein", "stack", "cabal"}
_NAME_SEPARATORS = re.compile(r"[-_:./]")
_WORKING_FOLDER = "./"


class _SimpleCommand(Value):
    """One program with its words, and the operator before it."""

    operator: str
    words: tuple[str, ...]

    @property
    def program_words(self) -> tuple[str, ...]:
        """Return the words from the bare name of the working program on, without wrappers and assignments."""
        words = self.words
        while words:
            name = _get_program_name(words[0])
            if _ASSIGNMENT.match(words[0]):
                words = words[1:]
            elif name in _WRAPPERS and len(words) > _WRAPPERS[name]:
                words = words[_WRAPPERS[name] :]
            elif len(words) > 2 and ((name, words[1]) in _RUNNERS or (_PYTHON.fullmatch(name) and words[1] == "-m")):
                words = words[2:]
            else:
                return (name, *words[1:])
        return ()

    @property
    def is_trivial(self) -> bool:
        name, *rest = self.program_words or ("true",)
        if name == "git":
            return next((w for w in rest if not w.startswith("-")), "status") in _READ_ONLY_GIT
        return name in _TRIVIAL or name.startswith(_TRIVIAL_CMDLETS)

    @property
    def is_recognizable(self) -> bool:
        """Return whether the words identify what was run."""
        return not self.is_trivial and self.program_words[0] not in _EXIT_WORDS


def condense_command(command: str) -> str:
    """Return one line without setup and redirection, or the whole command if it only inspects, tidies up or exits."""
    parts = _parse_commands(command)
    if any(part.is_recognizable for part in parts):
        while not parts[0].is_recognizable:
            del parts[0]
        while parts[-1].operator != "&&" and not parts[-1].is_recognizable:
            del parts[-1]
    words = [word for part in parts for word in (part.operator, *part.words)]
    return " ".join(words[1:])  # without the operator before the first command


def is_trivial(command: str) -> bool:
    """Return whether every part of the command only inspects or tidies up."""
    return all(part.is_trivial for part in _parse_commands(command))


def find_purpose(command: str) -> str | None:
    """Return the purpose of the first part with a known one, such as test or deploy."""
    return next(filter(None, (_find_part_purpose(part) for part in _parse_commands(command))), None)


def _parse_commands(command: str) -> list[_SimpleCommand]:
    text = _strip_heredocs(command[:MAX_COMMAND_CHARACTERS].replace("\\\n", " "))
    found: list[_SimpleCommand] = []
    words: list[str] = []
    operator, is_target = "", False
    for token in _TOKEN.finditer(text):
        if token["operator"]:
            found += [_SimpleCommand(operator, tuple(words))] if words else []
            operator, words = (";" if token["operator"] == "\n" else token["operator"]), []
        elif token["word"]:
            words += [] if is_target else [token["word"]]
        if not token["blank"]:
            is_target = bool(token["redirection"]) and "&" not in token["redirection"][1:]
    return [*found, _SimpleCommand(operator, tuple(words))] if words else found


def _strip_heredocs(text: str) -> str:
    """Remove the lines that are input of a program. Takes one pass over the lines."""
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


def _find_part_purpose(part: _SimpleCommand) -> str | None:
    if part.is_trivial or not part.program_words:
        return None
    script, *rest = part.program_words
    program = script.removeprefix(_WORKING_FOLDER)
    words = [word.strip("'\"").lower() for word in rest if not word.startswith("-")]
    first = words[0] if words else ""
    target = words[1:2] if words[:1] in (["run"], ["run-script"]) else words[:1]
    named = {piece for word in (program, *target) for piece in _NAME_SEPARATORS.split(word)}
    has_targets = script != program or program in _SCRIPT_RUNNERS | _LANGUAGE_TOOLS | _BUILDERS
    if program in _INSTALLERS and _INSTALL_VERBS & set(words[:2]):
        return INSTALL
    if program in _MIGRATORS or "migrate" in named | set(words[:2]):
        return MIGRATE
    if program in _CONTAINERS and first in _CONTAINER_VERBS:
        return "docker"
    if program in _CLOUD_TOOLS and first in _CLOUD_VERBS - {"deploy"}:
        return program
    if "deploy" in named or first in _CLUSTER_VERBS.get(program, ()):
        return DEPLOY
    if program in _TESTERS or (has_targets and {"test", "tests"} & named):
        return TEST
    if program in _BUILDERS or (has_targets and {"build", "compile"} & named):
        return BUILD
    return None


def _get_program_name(word: str) -> str:
    """Return the name of a program: python for `.venv/bin/python`, git for `C:/bin/git.exe`.

    A script in the working folder keeps a prefix that distinguishes it from a program of the same name.
    """
    word = word.strip("'\"")
    name = PureWindowsPath(word).name.lower().removesuffix(".exe").removesuffix(".cmd")
    return f"{_WORKING_FOLDER}{name}" if word.startswith(("./", ".\\")) else name or word


FAILURE_EVENT = "PostToolUseFailure"
OUTPUT_HEAD_CHARACTERS, OUTPUT_TAIL_CHARACTERS = 4_000, 16_000  # kept of an output
MAX_ERROR_LINES = 6
FALLBACK_LINES = 3  # the last ones, if no line looks like an error
MAX_LINE_CHARACTERS = 200
LINE_READ_CHARACTERS = 1_000  # read of each line
INTERRUPT_EXIT_CODES = (130, 143)  # of a program that was told to stop
MIN_SIGNATURE_WORDS = 3  # of a line that identifies a failure

_EXIT_CODE = re.compile(r"\bexit(?:ed with)?(?: code| status)?:?\s+(\d{1,10})\b", re.IGNORECASE)
_EXIT_LINE = re.compile(r"^(?:Error: )?Exit code:? \d+$", re.IGNORECASE)
# Nothing was run, because a person or a rule refused it.
_NOT_RUN = re.compile(
    r"doesn't want to (?:proceed|take this action)|Request interrupted|Permission to use"
    r"|denied by|blocked by|hook error",
    re.IGNORECASE,
)
_ANSI_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")

_FAILURE_COUNT = r"\b[1-9]\d* (?:failed|failures?|failing|errors?)\b|\b(?:failures|errors|failed): *[1-9]"
# A test run or build that reports a failure, even if a pipe hides its exit code.
_REPORTS_FAILURE = re.compile(
    rf"{_FAILURE_COUNT}|^FAILED\b|^FAIL\b|^--- FAIL|\bBUILD FAILED\b|\bBuild failed\b|^npm "
    rf"(?:ERR!|error)"
    r"|^make(?:\[\d+\])?: \*\*\*|^error(?:\[\w+\])?:|^Traceback \(most recent call last\)|^panic:",
    re.MULTILINE,
)
_REPORTS_SUCCESS = re.compile(
    r"\b[1-9]\d* passed\b|\b0 (?:failed|failures|errors)\b|^OK\b|^ok\s|\btest result: ok\b"
    r"|\bBUILD SUCCESS|\bBuild succeeded\b|\bpassing\b",
    re.MULTILINE,
)
_REPORTS_FAILURE_COUNT = re.compile(_FAILURE_COUNT)
_ERROR_LINE = re.compile(
    r"^E {2,}\S|\b\w*(?:Error|Exception)\b *[:(]|\berror(?:\[\w+\]| [a-z]+\d+)?:|^error\b|\bfatal:"
    r"|\bpanic(?:ked)?\b|^FAIL(?:ED)?\b|^--- FAIL|^npm (?:ERR!|error) (?!A complete log)|\*\*\* "
    rf"|\bBUILD FAILED\b|{_FAILURE_COUNT}|\bcannot\b|\bnot found\b|\bno "
    rf"such\b|\bdenied\b|\bundefined\b"
    r"|\btimed out\b|\brefused\b|^[✕✗×] ",
    re.IGNORECASE,
)
_ZERO_FAILED = re.compile(r"(?:^|[=:;,.]) *0 failed\b")  # any count of failures, because digits become 0
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+", re.IGNORECASE)


class CommandOutcome(Value):
    failed: bool
    output: str


def find_outcome(event: HookEvent, purpose: str | None) -> CommandOutcome | None:
    """Return the outcome, or None if it is unknown: interrupted, refused, or running in the background."""
    response = event.tool_response
    answer: Mapping[str, Any] = cast(Mapping[str, Any], response) if isinstance(response, Mapping) else {}
    output = clean_output(event.error or _extract_text(response))
    is_in_background = event.tool_input.get("run_in_background") is True or answer.get("backgroundTaskId")
    if event.is_interrupt or answer.get("interrupted") or answer.get("is_unknown") or is_in_background:
        return None
    code = _find_exit_code(answer, output, has_failed=event.name == FAILURE_EVENT)
    if code in INTERRUPT_EXIT_CODES or (event.name == FAILURE_EVENT and code is None and _NOT_RUN.search(output)):
        return None
    is_error = answer.get("is_error") is True or answer.get("isError") is True
    has_failed = event.name == FAILURE_EVENT or is_error or bool(code)
    return CommandOutcome(has_failed or _reports_failure(output, purpose), output)


def extract_error_lines(output: str) -> list[str]:
    """Return the few lines of an output that say what went wrong, each clipped."""
    lines = [line.strip()[:LINE_READ_CHARACTERS] for line in output.splitlines()]
    lines = [line for line in lines if line and not _EXIT_LINE.match(line)]
    telling = list(dict.fromkeys(line for line in lines if _ERROR_LINE.search(line)))
    if not telling:
        telling = lines[-FALLBACK_LINES:]
    elif len(telling) > MAX_ERROR_LINES:
        half = MAX_ERROR_LINES // 2  # compilers print the cause first, tracebacks last
        telling = [*telling[:half], *telling[-half:]]
    return [_clip_line(line) for line in telling]


def compute_signatures(lines: Iterable[str]) -> set[str]:
    """Return the lines that identify a failure, ignoring line numbers, addresses and times."""
    plain = (_NUMBERS.sub("0", line).lower().strip() for line in lines)
    known = (line for line in plain if not _ZERO_FAILED.search(line))
    return {line for line in known if len(line.split()) >= MIN_SIGNATURE_WORDS}


def clean_output(output: str) -> str:
    """Return the beginning and the end of an output, in whole lines and without colors."""
    if len(output) > OUTPUT_HEAD_CHARACTERS + OUTPUT_TAIL_CHARACTERS:
        first = output[:OUTPUT_HEAD_CHARACTERS].rpartition("\n")[0]
        last = output[-OUTPUT_TAIL_CHARACTERS:].partition("\n")[2]
        output = f"{first}\n{last}"
    return _CONTROL.sub("", _ANSI_CODES.sub("", output))


def _extract_text(response: Any) -> str:
    """Return the printed text, in whatever form a client passes it."""
    if isinstance(response, str):
        return response
    if isinstance(response, Mapping):
        fields = cast(Mapping[str, Any], response)
        names = ("stdout", "stderr", "output", "content", "text", "error")
        return "\n".join(filter(None, (_extract_text(fields.get(name)) for name in names)))
    if isinstance(response, Sequence) and not isinstance(response, bytes | bytearray):
        return "\n".join(filter(None, map(_extract_text, cast(Sequence[Any], response))))
    return ""


def _find_exit_code(answer: Mapping[str, Any], output: str, *, has_failed: bool) -> int | None:
    for name in ("exit_code", "exitCode", "returncode", "code"):
        if isinstance(given := answer.get(name), int) and not isinstance(given, bool):
            return given
    found = _EXIT_CODE.search(output[:MAX_LINE_CHARACTERS]) if has_failed else None
    return int(found[1]) if found else None


def _reports_failure(output: str, purpose: str | None) -> bool:
    if purpose not in (TEST, BUILD) or not _REPORTS_FAILURE.search(output):
        return False
    return bool(_REPORTS_FAILURE_COUNT.search(output)) or not _REPORTS_SUCCESS.search(output)


def _clip_line(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARACTERS else line[: MAX_LINE_CHARACTERS - 1].rstrip() + "…"
