"""Two worlds that differ in what one account may not see, and calls that it makes in both."""

import hashlib
import os
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from hypothesis import strategies as st

from everkept.accounts.account_library import format_private_name
from everkept.app.app import App
from everkept.core.records import Record
from everkept.core.sessions import Account, Session, act_as
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import EverkeptError
from everkept.families.history.model import CODE, CONVERSATION, SAID, TURN
from everkept.settings import read_settings
from everkept.tools.tool import Tool
from hash_embedder import HashingEmbedder
from records import DAY_ONE, batch

ANNA, BOB = Account("anna"), Account("bob")
SECRET = "quokkabane"  # stands in everything that is hidden, and anna never says it
WORDS = ("redis", "login", "invoice", "deploy", "token bucket")
PROJECTS = ("shop", "blog", "default", "notes")
HOMES = ("@user (bob)", "@user (anna)", "@history (bob)", "@user", "@history", "shop (bob)")
SESSIONS = ("s1", "s2", "session:1")
ENTITIES = ("Redis", "Ada", "Login")
FOLDER = "/srv/shop"
URIS = (
    "memory://knowledge-graph",
    "memory://status",
    "memory://session/summary",
    "memory://project/knowledge-graph",
    "memory://user/preferences",
    "memory-bank://progress.md",
    *(f"memory://projects/{name}/knowledge-graph" for name in (*PROJECTS, *HOMES)),
)
SECOND = 1_000_000
CROWD = 8  # memories that a session holds before a word is said about it

Access = str  # none, read or write
Step = tuple[str, Mapping[str, Any]]

_speaker: ContextVar[str] = ContextVar("speaker", default="")
_TIMES = re.compile(r"(?<=query_time_ms[\"']:)( ?)[\d.]+")


@contextmanager
def repeatable() -> Generator[None, None, None]:
    """Ids are made of who speaks and how often that one has made any, instead of by chance."""
    made: dict[str, count[int]] = {}

    def drawn(size: int) -> bytes:
        speaker = _speaker.get()
        number = next(made.setdefault(speaker, count()))
        return hashlib.sha512(f"{speaker} {number}".encode()).digest()[:size]

    with patch.object(os, "urandom", drawn):
        yield


@contextmanager
def speaking(name: str) -> Generator[None, None, None]:
    token = _speaker.set(name)
    try:
        yield
    finally:
        _speaker.reset(token)


@dataclass
class Time:
    """Goes on by a second a step, and within one by the looks of whoever speaks."""

    step: int = 0
    looks: dict[str, int] = field(default_factory=dict[str, int])

    def __call__(self) -> int:
        speaker = _speaker.get()
        self.looks[speaker] = self.looks.get(speaker, 0) + 1
        return DAY_ONE + self.step * SECOND + self.looks[speaker]

    def next(self) -> None:
        self.step += 1
        self.looks.clear()


class World:
    """A server with what its owner has granted to anna, and with or without everything else."""

    def __init__(self, data: Path, grants: Mapping[str, Access], *, has_others: bool) -> None:
        self.time = Time()
        with speaking("start"):
            self.app = App(
                read_settings({"data_dir": data, "transport": "http", "max_memories_per_session": CROWD}, {}),
                library=MemoryLibrary(self.time),
                embedder=HashingEmbedder(),
                clock=self.time,
            )
            self.anna = Session(client="editor 1", account=ANNA)
            self.bob = Session(client="editor 1", account=BOB)
            self.owner = Session(client="editor 1")
        self._grants = grants
        self._has_others = has_others

    async def begin(self) -> None:
        with speaking("anna's token"):
            await self.app.accounts.create_token("anna", "")
            await self._remember(self.anna, ANNA, "mine")
        for name, access in self._grants.items():
            if access == "none" and not self._has_others:
                continue
            with speaking(f"owner of {name}"):
                await self._furnish(self.owner, name, SECRET if access == "none" else "granted")
                if access != "none":
                    project = await self.app.library.get_project(name)
                    await self.app.accounts.grant("anna", project, cast(Any, access))
        self.owner.project = None
        if self._has_others:
            with speaking("others"):
                await self._others_begin()
        await self._settled()

    async def _others_begin(self) -> None:
        await self.app.accounts.create_token("bob", SECRET)
        await self._remember(self.bob, BOB, SECRET)
        for session, name in ((self.bob, "shop"), (self.bob, "notes"), (self.owner, "notes")):
            await self._furnish(session, name, SECRET)
        await self._furnish(self.owner, "shop (anna)", SECRET)
        shop = await self.app.library.get_project("shop")
        await self.app.library.link_workspace(FOLDER, shop)
        await (await self.app.library.open_history_store()).commit(batch(*_past(SECRET)))

    async def _remember(self, session: Session, account: Account, said: str) -> None:
        """A past conversation of an account's own: both have had as many, about the same."""
        made = await self.app.library.create(format_private_name("history", account.name), "")
        _, store = await self.app.library.open(made.name)
        await store.commit(batch(*_past(said)))
        # The first question has it indexed, which is done before the next.
        await self._told(session, "recall_previous_discussions", query="redis")

    async def _furnish(self, session: Session, project: str, said: str) -> None:
        """The same words everywhere, so that a question of anna's would find them."""
        try:
            await self._told(session, "create_project", name=project, description=said)
        except EverkeptError:
            await self._told(session, "switch_project", name=project)
        entities = [
            {"name": name, "entity_type": "thing", "observations": [f"{said} {word}"]}
            for name, word in zip(ENTITIES, WORDS, strict=False)
        ]
        await self._told(session, "create_entities", project=project, entities=entities)
        for scope in ("project", "user") if said == SECRET else ("project",):
            for word in WORDS:
                await self._told(
                    session,
                    "store_memory",
                    content=f"{said} {word} in {project} of {session.account}",
                    type="semantic",
                    scope=scope,
                    session_id=SESSIONS[0],
                    project=project,
                )

    async def _told(self, session: Session, tool: str, **arguments: Any) -> None:
        with act_as(session.account):
            await self.app.call(session, tool, arguments)

    async def others_do(self, step: Step) -> None:
        """What bob and the owner do meanwhile: the same that anna does next, so that it would
        meet her in every cache, count and name."""
        if not self._has_others:
            return
        with speaking("others"):
            await self._outcome(self.bob, _in_private(step))
            await self._outcome(self.owner, self._elsewhere(_in_private(step)))
        await self._settled()

    def _elsewhere(self, step: Step) -> Step:
        """What the owner does in a granted project anna may see, so it is done in another."""
        name, arguments = step
        granted = {project for project, access in self._grants.items() if access != "none"}
        moved = {key: "notes" for key in ("project", "name") if arguments.get(key) in granted}
        return name, {**arguments, **moved}

    async def anna_does(self, step: Step) -> str:
        self.time.next()
        with speaking("anna"):
            told = await self._outcome(self.anna, step)
        await self._settled()
        return _TIMES.sub(r"\1#", told)

    async def _outcome(self, session: Session, step: Step) -> str:
        name, arguments = step
        try:
            if name in _DOCUMENTS:
                return await self._document(session, name, str(arguments.get("uri", "")))
            result = await self.app.call(session, name, arguments)
        except EverkeptError as error:
            return f"{type(error).__name__} {error} {error.to_envelope()}"
        return f"{result.text} {result.facts}"

    async def _document(self, session: Session, name: str, uri: str) -> str:
        resources = self.app.resources
        with act_as(session.account):
            if name == "resources/list":
                return str(await resources.list_resources(session))
            if name == "resources/templates/list":
                return str(resources.list_templates())
            if name == "resources/state":
                return str(await resources.read_state(session, uri))
            if name == "tools/list":
                return f"{[tool.name for tool in self.app.tools]} {self.app.instructions}"
            return str(await resources.read(session, uri))

    async def _settled(self) -> None:
        with speaking("background"):
            await self.app.memory_access.catch_up(Session(), 20)

    async def close(self) -> None:
        await self.app.close()


_DOCUMENTS = ("resources/list", "resources/templates/list", "resources/read", "resources/state", "tools/list")


def _in_private(step: Step) -> Step:
    """The same step with a text that nobody else knows."""
    name, arguments = step
    if "content" in arguments:
        arguments = {**arguments, "content": f"{arguments['content']} {SECRET}"}
    return name, arguments


def _past(said: str) -> list[Record]:
    common: dict[str, Any] = {"created_at": DAY_ONE, "updated_at": DAY_ONE, "scope": FOLDER}
    return [
        Record(id="talk", kind=CONVERSATION, name=f"{said} redis", session="talk", **common),
        Record(
            id="turn",
            kind=TURN,
            type=SAID,
            text=f"{said}: we limit login with redis and a token bucket",
            parent="talk",
            session="talk",
            position=0,
            **common,
        ),
        Record(id="code", kind=CODE, text=f"def {said}_login(redis): ...", parent="turn", **common),
    ]


@st.composite
def steps(draw: st.DrawFn, tools: Sequence[Tool], ids: Sequence[str]) -> Step:
    """Calls of every tool and looks at every document, which often name what is hidden."""
    chosen = draw(st.sampled_from((*tools, *_DOCUMENTS)))
    if isinstance(chosen, str):
        return chosen, {"uri": draw(st.sampled_from(URIS))}
    arguments = draw(_object(chosen.input_schema, ids))
    if draw(st.booleans()):  # fewer of them make more sense together
        needed = {*chosen.input_schema.get("required", ()), "session_id"}
        arguments = {name: value for name, value in arguments.items() if name in needed}
    return chosen.name, arguments


def _object(schema: Mapping[str, Any], ids: Sequence[str]) -> st.SearchStrategy[dict[str, Any]]:
    properties = cast("dict[str, dict[str, Any]]", schema.get("properties", {}))
    values = {name: _value(name, each, ids) for name, each in properties.items()}
    required = cast("list[str]", schema.get("required", []))
    return st.fixed_dictionaries(
        {name: values[name] for name in required},
        optional={name: each for name, each in values.items() if name not in required},
    )


def _value(name: str, schema: Mapping[str, Any], ids: Sequence[str]) -> st.SearchStrategy[Any]:
    if "oneOf" in schema:
        return st.one_of(*(_value(name, each, ids) for each in schema["oneOf"]))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "string":
            return _text(name, str(schema.get("format", "")), ids)
        case "integer":
            least = int(schema.get("minimum", 1))
            return st.integers(least, min(int(schema.get("maximum", 50)), least + 49))
        case "number":
            return st.floats(0, 1)
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(_value(name, schema["items"], ids), min_size=1, max_size=2)
        case _:
            return _object(schema, ids)


def _text(name: str, form: str, ids: Sequence[str]) -> st.SearchStrategy[str]:
    if form == "date-time":
        return st.sampled_from(("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"))
    if name == "session_id":
        return st.sampled_from(SESSIONS)
    if name in ("memory_id", "supersedes", "id"):
        return st.sampled_from(ids)
    if name in ("project", "name"):
        return st.sampled_from((*PROJECTS, *PROJECTS, *HOMES, *ENTITIES[:1]))
    if name in ("names", "entity_name", "entity", "from", "to"):
        return st.sampled_from((*ENTITIES, *ids[:3]))
    if name == "project_filter":
        return st.sampled_from((FOLDER, "shop"))
    return st.sampled_from(WORDS)
