"""A memory for programs that use asyncio. `memory.py` is written from this file."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from everkept.api import operations
from everkept.api.connection import CLIENT, AsyncCaller, Connection
from everkept.api.results import (
    AddedTurns,
    Change,
    Context,
    Conversation,
    ConversationHit,
    Document,
    DocumentWrite,
    Entity,
    GraphPage,
    Hit,
    MemoryType,
    Project,
    Recall,
    Related,
    Remembered,
    Said,
    Scope,
    Strategy,
    Walk,
)
from everkept.families.documents.documents import DocumentQuery


class AsyncGraph(AsyncCaller):
    """The knowledge graph of the project: entities, observations about them, and relations between them."""

    async def add(self, name: str, type: str, observations: Sequence[str] = ()) -> Entity:
        """Add an entity. An existing one of this name and type gains the observations."""
        entity = {
            "name": name,
            "entity_type": type,
            "observations": operations.list_texts("observations", observations),
        }
        await self._call("create_entities", entities=[entity])
        found = await self.open([f"{name} ({type})"]) or await self.open([name])  # a type may contain brackets
        return found[0]

    async def observe(self, name: str, *observations: str) -> int:
        """Add facts to an entity. Return how many are new."""
        given = [{"entity_name": name, "contents": list(observations)}]
        return len((await self._call("add_observations", observations=given))["observations"])

    async def relate(self, source: str, verb: str, target: str) -> bool:
        """Add a relation, such as `relate("API", "depends_on", "Database")`. Return False if it existed."""
        relation = {"from": source, "relation_type": verb, "to": target}
        return bool((await self._call("create_relations", relations=[relation]))["relations"])

    async def search(self, query: str, *, limit: int = 20) -> list[Entity]:
        """Find entities by words in their names, types and observations."""
        found = await self._call("search_nodes", query=query, limit=limit)
        return [Entity.from_facts(each) for each in found["entities"]]

    async def open(self, names: Sequence[str]) -> list[Entity]:
        """Return entities by name, with their relations. Names that do not exist are omitted."""
        found = await self._call("open_nodes", names=operations.list_texts("names", names))
        return [Entity.from_facts(each) for each in found["entities"]]

    async def read(self, *, limit: int = 200, cursor: str | None = None) -> GraphPage:
        """Return a page of the whole graph."""
        return GraphPage.from_facts(await self._call("read_graph", limit=limit, cursor=cursor))

    async def walk(
        self, name: str, *, depth: int = 1, verb: str | None = None, memories: bool = True, limit: int = 20
    ) -> Walk:
        """Follow the relations of an entity to its neighbors and the memories about them."""
        found = await self._call(
            "search_knowledge_graph",
            entity=name,
            depth=depth,
            relationship_type=verb,
            include_memories=memories,
            limit=limit,
        )
        return Walk.from_facts(found)

    async def delete(self, *names: str) -> int:
        """Delete entities with their observations and relations. Return how many existed."""
        return int((await self._call("delete_entities", names=list(names)))["deleted"])

    async def unobserve(self, name: str, *observations: str) -> int:
        """Delete facts of an entity by their exact text. Return how many existed."""
        given = [{"entity_name": name, "observations": list(observations)}]
        return int((await self._call("delete_observations", deletions=given))["deleted"])

    async def unrelate(self, source: str, verb: str, target: str) -> bool:
        """Delete a relation. Return False if it did not exist."""
        relation = {"from": source, "relation_type": verb, "to": target}
        return bool((await self._call("delete_relations", relations=[relation]))["deleted"])


class AsyncConversations(AsyncCaller):
    """Past conversations: those that you add, and those imported from assistants."""

    async def add(self, session: str, turns: Sequence[Said], *, title: str | None = None) -> AddedTurns:
        """Add turns to the conversation of a session. The first call creates it."""
        return await self._run(partial(operations.add_turns, self._connection, session, turns, title))

    async def recall(self, query: str, *, limit: int = 10, folder: str | None = None) -> list[ConversationHit]:
        """Search all conversations, best first. With `folder`, only those of this folder."""
        found = await self._call("recall_previous_discussions", query=query, limit=limit, project_filter=folder)
        return [ConversationHit.from_facts(each) for each in found["results"]]

    async def recall_code(self, query: str, *, limit: int = 10, language: str | None = None) -> list[ConversationHit]:
        """Search the code of all conversations by name, file or idea."""
        found = await self._call("search_code_history", query=query, limit=limit, language=language)
        return [ConversationHit.from_facts(each) for each in found["results"]]

    async def read(self, id: str, *, limit: int = 20, cursor: str | None = None) -> Conversation:
        """Return turns of a conversation. `id` is that of a hit, a turn, a conversation or a session."""
        return Conversation.from_facts(await self._call("read_conversation", id=id, limit=limit, cursor=cursor))


class AsyncDocuments(AsyncCaller):
    """JSON values that a program keeps under a namespace and a key, such as `("users", "ada")` and `"settings"`.

    They are stored unchanged, also secrets in them; only the text that queries search is masked.
    """

    async def put(
        self,
        namespace: Sequence[str],
        key: str,
        value: Mapping[str, Any],
        *,
        text: str | None = None,
        ttl: float | None = None,
    ) -> None:
        """Store a value, or replace the one of this namespace and key.

        `text` is what queries search: by default all texts of the value; an empty one hides it from them. `ttl` is the
        lifetime in minutes since the value was last written or read.
        """
        await self.write([DocumentWrite(namespace, key, value, text, ttl)])

    async def delete(self, namespace: Sequence[str], key: str) -> bool:
        """Delete a value. Return False if it did not exist."""
        return await self.write([DocumentWrite(namespace, key, None)]) > 0

    async def write(self, writes: Sequence[DocumentWrite]) -> int:
        """Store and delete in one transaction. Return how many values changed."""
        return await self._run(partial(operations.write_documents, self._connection, writes))

    async def get(self, namespace: Sequence[str], key: str, *, refresh_ttl: bool = True) -> Document | None:
        """Return a value, or None if it does not exist."""
        return (await self.get_all([(namespace, key)], refresh_ttl=refresh_ttl))[0]

    async def get_all(
        self, keys: Sequence[tuple[Sequence[str], str]], *, refresh_ttl: bool = True
    ) -> list[Document | None]:
        """Return the values of these namespaces and keys in this order, each None if it does not exist."""
        return await self._run(partial(operations.get_documents, self._connection, keys, refresh_ttl))

    async def search(
        self,
        namespace: Sequence[str] = (),
        query: str | None = None,
        *,
        filter: Mapping[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool = True,
    ) -> list[Document]:
        """Return values in a namespace and in those below it.

        With a query, return those that match by words or by meaning, best first; otherwise the newest first. `filter`
        has values that must be equal, or conditions such as `{"age": {"$gte": 18}}`.
        """
        wanted = DocumentQuery(namespace, query, filter, limit, offset, refresh_ttl)
        return await self._run(partial(operations.search_documents, self._connection, wanted))

    async def namespaces(self) -> list[tuple[str, ...]]:
        """List the namespaces that have values."""
        return await self._run(partial(operations.list_namespaces, self._connection))

    async def expire(self) -> int:
        """Erase values whose lifetime is over. They are hidden already. Return their number."""
        return await self._run(partial(operations.expire_documents, self._connection))


class AsyncFiles(AsyncCaller):
    """The files that a model keeps below `/memories`, in the memory bank of the working folder.

    The commands are those of Anthropic's memory tool. They return the text for the model, and so does the message of
    an error.
    """

    async def view(self, path: str = "/memories", view_range: Sequence[int] | None = None) -> str:
        """Return the files in a folder, or the numbered lines of a file. A range has the first line and the last."""
        return await self._do("view", path, view_range)

    async def create(self, path: str, file_text: str) -> str:
        """Create a file. Raise Conflict if the path exists."""
        return await self._do("create", path, file_text)

    async def str_replace(self, path: str, old_str: str, new_str: str) -> str:
        """Replace a text that is in the file exactly once."""
        return await self._do("str_replace", path, old_str, new_str)

    async def insert(self, path: str, insert_line: int, insert_text: str) -> str:
        """Insert lines after a line. Line 0 is the top."""
        return await self._do("insert", path, insert_line, insert_text)

    async def delete(self, path: str) -> str:
        """Delete a file, or a folder with its files."""
        return await self._do("delete", path)

    async def rename(self, old_path: str, new_path: str) -> str:
        """Rename or move a file or folder. Raise Conflict if the new path exists."""
        return await self._do("rename", old_path, new_path)

    async def clear(self) -> str:
        """Delete all files below `/memories`."""
        return await self._do("clear")

    async def _do(self, command: str, *arguments: Any) -> str:
        return await self._run(partial(operations.run_on_files, self._connection, command, *arguments))


class AsyncProjects(AsyncCaller):
    """All projects in the data folder."""

    async def list(self, *, archived: bool = False) -> list[Project]:
        """List the active projects, and with `archived` those too."""
        found = await self._call("list_projects", status="all" if archived else "active")
        return [Project.from_facts(each) for each in found["projects"]]

    async def create(self, name: str, description: str = "") -> Project:
        """Create a project. To use it, open a memory with its name."""
        return Project.from_facts(
            await self._run(partial(operations.create_project, self._connection, name, description))
        )

    async def archive(self, name: str) -> Project:
        """Archive a project. Its data is kept."""
        return Project.from_facts(await self._call("archive_project", name=name))

    async def restore(self, name: str) -> Project:
        """Make an archived project active again."""
        return Project.from_facts(await self._call("restore_project", name=name))

    async def delete(self, name: str) -> None:
        """Delete a project and its data."""
        await self._call("delete_project", name=name)


class AsyncMemory(AsyncCaller):
    """The memory of one project and of the user.

    Open it with `AsyncMemory.open()` in an `async with` block, or call `close()` when done. Every thread, event loop
    and process may use the same data at the same time. All methods raise the errors of `everkept.errors`.
    """

    graph: AsyncGraph
    conversations: AsyncConversations
    documents: AsyncDocuments
    files: AsyncFiles
    projects: AsyncProjects

    def __init__(self, connection: Connection) -> None:
        """Use `AsyncMemory.open()` instead."""
        super().__init__(connection)
        self.graph = AsyncGraph(connection)
        self.conversations = AsyncConversations(connection)
        self.documents = AsyncDocuments(connection)
        self.files = AsyncFiles(connection)
        self.projects = AsyncProjects(connection)

    @classmethod
    def open(
        cls, *, project: str | None = None, folder: str | Path | None = None, client: str = CLIENT, **settings: Any
    ) -> Self:
        """Open a memory.

        `project` is a name; without one, the memory uses the project of the folder, as commands and assistants do.
        `folder` is the working folder; default: the current one. `client` is the name of your program in the log.
        `settings` have the names of docs/settings.md, such as `data_dir`, `engine` and `database_url`.
        """
        return cls(Connection(project, folder, client, settings))

    async def remember(
        self,
        text: str,
        *,
        type: MemoryType = "semantic",
        scope: Scope = "project",
        importance: float | None = None,
        tags: Sequence[str] = (),
        about: Sequence[str | Related] = (),
        author: str | None = None,
        occurred_at: datetime | str | None = None,
        session: str | None = None,
        source_tool: str | None = None,
        source_file: str | Path | None = None,
        metadata: Mapping[str, Any] | None = None,
        pinned: bool = False,
        supersedes: str | None = None,
    ) -> Remembered:
        """Store one statement. The same text in the same scope adds to the existing memory.

        `about` names entities of the graph. `supersedes` is the id of a memory that this one replaces.
        """
        stored = await self._call(
            "store_memory",
            content=text,
            type=type,
            scope=scope,
            importance=importance,
            tags=operations.list_texts("tags", tags) or None,
            related_entities=operations.describe_entities(about),
            author=author,
            occurred_at=operations.format_moment(occurred_at),
            session_id=session,
            source=operations.describe_source(source_tool, source_file),
            metadata=operations.require_json("metadata", metadata),
            pinned=pinned or None,
            supersedes=supersedes,
        )
        return Remembered.from_facts(stored)

    async def recall(
        self,
        query: str,
        *,
        limit: int = 10,
        scopes: Sequence[Scope] = (),
        types: Sequence[MemoryType] = (),
        tags: Sequence[str] = (),
        min_importance: float | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        as_of: datetime | str | None = None,
        session: str | None = None,
        strategy: Strategy = "hybrid",
        include_forgotten: bool = False,
    ) -> Recall:
        """Find memories that answer a question, best first.

        `since` and `until` limit when it happened. `as_of` searches what was stored at that time.
        """
        found = await self._call(
            "recall_memories",
            query=query,
            limit=limit,
            scope=operations.list_texts("scopes", scopes) or None,
            type=operations.list_texts("types", types) or None,
            tags=operations.list_texts("tags", tags) or None,
            min_importance=min_importance,
            time_range=operations.describe_range(since, until),
            as_of=operations.format_moment(as_of),
            session_id=session,
            strategy=strategy,
            include_forgotten=include_forgotten or None,
            explain=True,
        )
        return Recall.from_facts(found)

    async def context(
        self, task: str | None = None, *, files: Sequence[str | Path] = (), max_tokens: int = 2_000
    ) -> Context:
        """Return text for a prompt: what is known about the user, the project and the task."""
        found = await self._call(
            "get_memory_context",
            task_description=task,
            files_in_context=operations.list_paths(files),
            max_tokens=max_tokens,
        )
        return Context.from_facts(found)

    async def get(self, id: str) -> Hit:
        """Return one memory. Raises NotFound if it does not exist or was forgotten."""
        return await self._run(partial(operations.read_memory, self._connection, id))

    async def edit(
        self,
        id: str,
        text: str | None = None,
        *,
        importance: float | None = None,
        add_tags: Sequence[str] = (),
        remove_tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        pinned: bool | None = None,
    ) -> Hit:
        """Correct a memory and return it. `metadata` is merged into what it has."""
        await self._call(
            "update_memory",
            memory_id=id,
            content=text,
            importance=importance,
            tags=operations.describe_tags(add_tags, remove_tags),
            metadata=operations.require_json("metadata", metadata),
            pinned=pinned,
        )
        return await self.get(id)

    async def forget(self, id: str, reason: str | None = None) -> None:
        """Hide a memory from recall. `undo` shows it again."""
        await self._call("forget_memory", memory_id=id, reason=reason)

    async def changes(self, *, limit: int = 20) -> list[Change]:
        """List the newest changes of the project, newest first."""
        return await self._run(partial(operations.list_changes, self._connection, limit))

    async def undo(self, reference: str | None = None) -> Change:
        """Undo a change, by default the newest one of the project, and return it."""
        return await self._run(partial(operations.undo, self._connection, reference))

    async def close(self) -> None:
        """Finish what is under way and close all files. Closing twice does nothing."""
        await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
