"""Real servers and commands on each engine, and what an assistant is told by them."""

import json
import re
import shutil
import subprocess
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

import postgres_server
from server_processes import HANG, INITIALIZE, StdioServer, command, environment, stdio_server
from surreal_server import PASSWORD, USER, fresh_namespace, shared

ENGINES = ("sqlite", "embedded-memory", "embedded-file", "server-2", "server-3", "postgres")
SERVERS = ("server-2", "server-3", "postgres")
REFERENCE = "sqlite"
POSTGRES = "postgres"
EMBEDDED = ("embedded-memory", "embedded-file")  # one process at a time has the data
VARIANTS = (*EMBEDDED, "server-2")  # of engines that are tried anyway
SESSION = "one"
MANY_LOOKS = 600  # each is a call, which takes its time: only a hang takes as many
TRANSCRIPT = Path(__file__).parents[1] / "transcripts" / "samples" / "claude_code_session.jsonl"

# What differs from run to run, or is an engine's own.
_OWN = {
    *("relevance_score", "score", "why", "query_time_ms", "uptime_seconds", "etag"),
    *("path", "version", "engine", "mode", "database_size_bytes", "access_count"),
}
_IDS = re.compile(
    r"\b(?:[0-9A-HJKMNP-TV-Z]{26}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|(?:ent|obs|rel)_[\w-]{12})"
)
_TIMES = re.compile(r"\b(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d(?::\d\d)?(?:\.\d+)?Z?|just now|\d+ min\w* ago")
_DAYS = re.compile(r"\b\d{4}-\d\d-\d\d\b")
_FENCES = re.compile(r"memories-[0-9a-f]{6}")
_FOREIGN = ("CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME")


def parameters(engines: Sequence[str]) -> list[Any]:
    """Return the engines as parameters of a test; their variants are thorough ones."""
    marks = {engine: [pytest.mark.thorough] if engine in VARIANTS else [] for engine in engines}
    return [pytest.param(engine, marks=marks[engine]) for engine in engines]


@dataclass(frozen=True)
class Place:
    """Where servers and commands of one engine keep everything."""

    engine: str
    folder: Path
    variables: Mapping[str, str]

    @property
    def product(self) -> str:
        """What the program calls the engine."""
        return self.engine if self.engine in (REFERENCE, POSTGRES) else "surreal"

    @property
    def mode(self) -> str:
        if self.engine in SERVERS:
            return "local-server"
        return "embedded-file" if self.engine == REFERENCE else self.engine

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in environment().items() if name not in _FOREIGN}
        return kept | {"HOME": str(self.home), "USERPROFILE": str(self.home), **self.variables}

    @contextmanager
    def serving(self, *options: object, session: str = SESSION) -> Generator[StdioServer, None, None]:
        """A server with all tools, which works in the project `shop`."""
        chosen = (*("--toolsets", "all", "--project", "shop", "--path", self.work), *options)
        variables = {**self.environment(), "MEMORY_SESSION_ID": session}
        with stdio_server(self.data, *chosen, **variables) as server:
            server.ask(0, "initialize", **INITIALIZE)
            yield server

    def run(self, *arguments: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command(*arguments, "--data-dir", self.data),
            capture_output=True,
            check=False,
            encoding="utf-8",
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            timeout=HANG,
        )

    def told(self, *arguments: object) -> Any:
        """What a command answers in JSON."""
        ended = self.run(*arguments, "--json")
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)


def place(engine: str, folder: Path, *, url: str = "", namespace: str = "") -> Place:
    """An empty one. A database server is that of `url`, or one that all tests share."""
    return _made(Place(engine, folder, _variables(engine, url, namespace)))


def beside(at: Place, folder: Path) -> Place:
    """Another machine, as it were, with the same database server."""
    return _made(Place(at.engine, folder, at.variables))


def _made(at: Place) -> Place:
    for each in (at.home, at.work):
        each.mkdir(parents=True)
    return at


def _variables(engine: str, url: str, namespace: str) -> dict[str, str]:
    if engine == REFERENCE:
        return {}
    chosen = {"EVERKEPT_NAMESPACE": namespace or fresh_namespace()}
    if engine in EMBEDDED:
        return chosen | {"EVERKEPT_ENGINE": "surreal", "EVERKEPT_DEPLOYMENT_MODE": engine}
    if engine == POSTGRES:
        server = postgres_server.shared()
        return chosen | {
            "EVERKEPT_DATABASE_URL": url or f"postgresql://127.0.0.1:{server.port}/postgres",
            "EVERKEPT_DATABASE_USER": server.credentials.user,
        }
    return chosen | {
        "EVERKEPT_DATABASE_URL": url or shared(int(engine[-1])).url,
        "EVERKEPT_DATABASE_USER": USER,
        "EVERKEPT_DATABASE_PASSWORD": PASSWORD,
    }


@dataclass
class Talk:
    """Calls tools, and keeps of each answer what must be the same on every engine."""

    server: StdioServer
    place: Place
    kept: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    _named: dict[str, str] = field(default_factory=dict[str, str])

    def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured answer of a call that succeeds."""
        result = self._result(tool, arguments)
        assert not result.get("isError"), result
        return self.keep(tool, result["structuredContent"])

    def refused(self, tool: str, **arguments: Any) -> str:
        """The code of a call that fails."""
        result = self._result(tool, arguments)
        assert result.get("isError"), result
        return self.keep(tool, result["structuredContent"])["error"]

    def settled(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The answer of a search once nothing waits for its vector: until then it may lack some.

        Kept is what the caller keeps: how well words fit is each engine's own measure.
        """
        wait_for_vectors(self.server)
        answer: dict[str, Any] = {}
        for _ in range(MANY_LOOKS):
            answer = self._result(tool, arguments)["structuredContent"]
            if not _warnings(answer):
                return answer
        raise AssertionError(answer)

    def read(self, uri: str) -> str:
        """The text of a resource."""
        [content] = self.server.ask(1, "resources/read", uri=uri)["result"]["contents"]
        return content["text"]

    def keep(self, asked: str, answer: Any) -> Any:
        text = json.dumps(_in_common(answer), ensure_ascii=False)
        text = text.replace(str(self.place.folder), "<folder>")
        text = _FENCES.sub("<fence>", _TIMES.sub("<time>", _IDS.sub(self._name, text)))
        text = _DAYS.sub(_hide_day, text)
        self.kept.append((asked, json.loads(text)))
        return answer

    def _result(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self.server.ask(1, "tools/call", name=tool, arguments=arguments)["result"]

    def _name(self, found: re.Match[str]) -> str:
        """Ids are told apart by when they were first seen."""
        return self._named.setdefault(found[0], f"<id {len(self._named) + 1}>")


def _hide_day(found: re.Match[str]) -> str:
    """Hide a day that depends on today. Others are in the recorded conversations."""
    yesterday = datetime.now(UTC) - timedelta(days=1)
    return "<day>" if found[0] >= yesterday.strftime("%Y-%m-%d") else found[0]


def _in_common(answer: Any) -> Any:
    if isinstance(answer, dict):
        items = cast(dict[str, Any], answer).items()
        return {name: _in_common(value) for name, value in items if name not in _OWN}
    if isinstance(answer, list):
        return [_in_common(value) for value in cast(list[Any], answer)]
    return answer


def _warnings(answer: Mapping[str, Any]) -> Any:
    """Why an answer may lack something; tools of the bank say it beside their results."""
    warnings = answer.get("warnings") or answer.get("metadata", {}).get("warnings") or ()
    return [warning for warning in warnings if not (isinstance(warning, dict) and warning["code"] == "nothing_fits")]


def wait_for_vectors(server: StdioServer) -> None:
    """The background embeds; each look is a call to the server, which takes its time."""
    embeddings: Any = None
    for _ in range(MANY_LOOKS):
        embeddings = server.call("get_memory_status")["storage"]["embeddings"]
        if embeddings["pending"] == 0:
            return
        server.call("recall_memories", query="anything at all", strategy="vector")
    raise AssertionError(embeddings)


def import_transcript(kept: Place) -> None:
    """Lets the command find a conversation where an assistant has left it."""
    folder = kept.home / ".claude" / "projects" / "-home-dev-shop-api"
    folder.mkdir(parents=True)
    shutil.copy(TRANSCRIPT, folder / "11111111-2222-4333-8444-555555555555.jsonl")
    assert kept.told("import", "history")["total"]["turns"] == 5


def stored(server: StdioServer, content: str, scope: str = "project", **more: Any) -> str:
    answer = server.call("store_memory", content=content, type="semantic", scope=scope, **more)
    return answer["memory_id"]


def recalled(server: StdioServer, query: str) -> list[str]:
    answer = server.call("recall_memories", query=query, strategy="keyword", limit=50)
    return contents(answer["memories"])


def contents(memories: Iterable[Mapping[str, Any]]) -> list[str]:
    return [memory["content"] for memory in memories]
