"""What the Python API does beyond the tools, and arguments in the form that tools read."""

import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from everkept.api.connection import Connection
from everkept.api.results import AddedTurns, Change, Document, Hit, Related, Said, build_hit, parse_moment
from everkept.app.change_log import ChangeLogEntry
from everkept.core.records import EXPIRE_TOOL
from everkept.core.sessions import Session, ToolCall
from everkept.core.text import clip_text
from everkept.core.times import format_iso
from everkept.core.transcripts import ASSISTANT, USER, Event, Mark, Portion, TitleEvent, Turn
from everkept.errors import InvalidInput, NotFound
from everkept.families.documents.document import WRITE_TOOL, DocumentWrite
from everkept.families.documents.documents import DocumentQuery
from everkept.families.history.model import build_conversation_id

SOURCE = "python"  # the program of conversations that are added here


async def read_memory(connection: Connection, memory_id: str) -> Hit:
    record = await connection.app.memory_access.find_memory(connection.session, memory_id)
    if record is None:
        raise NotFound("memory", memory_id, hint="Use an id from `remember` or `recall`.")
    return build_hit(record)


async def list_changes(connection: Connection, limit: int) -> list[Change]:
    """List the newest changes of the project."""
    project = await connection.app.memory_access.find_project(connection.session)
    if project is None:
        return []
    return [_build_change(each) for each in await connection.app.change_log.list_entries(project.name, limit)]


async def undo(connection: Connection, reference: str | None) -> Change:
    project = await connection.app.memory_access.find_project(connection.session)
    name = None if project is None else project.name
    return _build_change(await connection.app.change_log.undo(reference, name, connection.session.client))


async def create_project(connection: Connection, name: str, description: str) -> Mapping[str, Any]:
    """Create a project and leave this memory in its own."""
    once = Session(client=connection.session.client, stateful=False, is_conversation=False)
    created = await connection.app.call(once, "create_project", {"name": name, "description": description})
    return created.facts


def _build_change(entry: ChangeLogEntry) -> Change:
    change = entry.change
    at = parse_moment(format_iso(change.at))
    return Change(entry.reference, entry.project, entry.summary, change.tool, change.client or "", at, entry.is_undone)


async def add_turns(connection: Connection, session: str, turns: Sequence[Said], title: str | None) -> AddedTurns:
    """Add turns to the conversation of a session, in one transaction for each portion."""
    folder = connection.app.settings.path
    given = _GivenTurns(session, turns, title, None if folder is None else str(folder))
    counts = await connection.app.history.add_transcript(given)
    return AddedTurns(build_conversation_id(SOURCE, session), counts.turns, counts.turns_left_out)


class _GivenTurns:
    """Turns of a program, in the form of a transcript. Earlier turns of the conversation do not change."""

    source = SOURCE

    def __init__(self, session: str, turns: Sequence[Said], title: str | None, folder: str | None) -> None:
        self.name = session
        self.modified = time.time_ns() // 1_000
        self.size = self.modified  # differs in each call, so that no call counts as read already
        said = [_build_turn(session, each, folder) for each in turns]
        self._events: list[Event] = [*said, *([TitleEvent(session, title)] if title else [])]

    def read_portions(self, mark: Mark | None) -> Iterator[Portion]:
        yield Portion(tuple(self._events), {"added": self.modified}, self.size)


def _build_turn(session: str, said: Said, folder: str | None) -> Turn:
    if said.author not in (USER, ASSISTANT):
        raise InvalidInput(
            f'`author` is "{said.author}".', hint="Use user or assistant.", argument="author", value=said.author
        )
    if not said.text.strip():
        raise InvalidInput("`text` of a turn is empty.", hint="Leave the turn out.", argument="text", value="")
    moment = datetime.now().astimezone() if said.at is None else said.at.astimezone()
    key = f"{session}/{said.key or uuid4().hex}"
    return Turn(key, session, said.author, said.text, at=int(moment.timestamp() * 1_000_000), project=folder)


async def write_documents(connection: Connection, writes: Sequence[DocumentWrite]) -> int:
    call = ToolCall(connection.session, WRITE_TOOL)
    return await connection.app.documents.write(call, writes)


async def get_documents(
    connection: Connection, keys: Sequence[tuple[Sequence[str], str]], refresh_ttl: bool
) -> list[Document | None]:
    call = ToolCall(connection.session, "get_documents")
    found = await connection.app.documents.get(call, keys, is_access=refresh_ttl)
    return [None if each is None else Document.from_stored(each) for each in found]


async def search_documents(connection: Connection, wanted: DocumentQuery) -> list[Document]:
    call = ToolCall(connection.session, "search_documents")
    return [Document.from_stored(each) for each in await connection.app.documents.search(call, wanted)]


async def list_namespaces(connection: Connection) -> list[tuple[str, ...]]:
    return await connection.app.documents.list_namespaces(ToolCall(connection.session, "list_namespaces"))


async def run_on_files(connection: Connection, command: str, *arguments: Any) -> str:
    bank = connection.app.bank
    assert bank is not None  # it is among the toolsets of the connection
    run: Callable[..., Awaitable[str]] = getattr(bank.memory_files, command)
    return await run(ToolCall(connection.session, "memory"), *arguments)


async def expire_documents(connection: Connection) -> int:
    return await connection.app.documents.expire(ToolCall(connection.session, EXPIRE_TOOL))


def format_moment(moment: datetime | str | None) -> str | None:
    """Return a time as the tools read it. A time without a zone is local."""
    return moment.astimezone().isoformat() if isinstance(moment, datetime) else moment


def describe_range(since: datetime | str | None, until: datetime | str | None) -> dict[str, str] | None:
    given = {"after": format_moment(since), "before": format_moment(until)}
    return {name: moment for name, moment in given.items() if moment is not None} or None


def describe_entities(about: Sequence[str | Related]) -> list[str | dict[str, str]] | None:
    """Return the entities that a memory is about. A text is a name."""
    _refuse_text("about", about)
    named: list[str | dict[str, str]] = [
        each if isinstance(each, str) else {"name": each.name, "type": each.type, "relationship": each.relationship}
        for each in about
    ]
    return named or None


def describe_source(tool: str | None, file: str | Path | None) -> dict[str, str] | None:
    given = {"tool": tool, "file": None if file is None else str(file)}
    return {name: value for name, value in given.items() if value is not None} or None


def describe_tags(add: Sequence[str], remove: Sequence[str]) -> dict[str, list[str]] | None:
    given = {"add": list_texts("add_tags", add), "remove": list_texts("remove_tags", remove)}
    return given if add or remove else None


def list_texts(argument: str, given: Sequence[str]) -> list[str]:
    _refuse_text(argument, given)
    return list(given)


def _refuse_text(argument: str, given: Sequence[Any]) -> None:
    """Raise InvalidInput for a text, which Python would take for a sequence of its characters."""
    if isinstance(given, str):
        raise InvalidInput(
            f'`{argument}` must be a list, not "{clip_text(given)}".',
            hint=f'Pass {argument}=["{clip_text(given)}"].',
            argument=argument,
        )


def require_json(argument: str, value: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the value, or raise InvalidInput if JSON has no form for a part of it, such as a datetime."""
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"`{argument}` is not JSON: {error}.", hint="Convert what JSON does not have into texts.", argument=argument
        ) from error
    return value


def list_paths(files: Sequence[str | Path]) -> list[str] | None:
    _refuse_text("files", files)
    return [str(file) for file in files] or None
