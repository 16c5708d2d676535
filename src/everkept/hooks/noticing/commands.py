"""What a command of a shell is for, told by its words."""

import re
from collections.abc import Sequence
from pathlib import PureWindowsPath

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
