"""Tools of the page about the knowledge graph: its shape without texts, and one entity with all of them."""

from typing import Annotated, Any

from everkept.app.app import App
from everkept.app.graph_outline import MAX_ENTITIES, read_entity, read_outline, read_surroundings
from everkept.app.memory_table import open_stores
from everkept.core.ports import RecordStore
from everkept.core.records import Record, RecordFilter
from everkept.core.text import compute_name_key
from everkept.core.times import format_iso
from everkept.errors import NotFound
from everkept.graph.entities import ENTITY
from everkept.tools.schema import Field, to_json
from everkept.tools.tool import ToolFamily, ToolResult, tool

MAX_MATCHES = 50
MAX_HOPS = 4
SHOWN_CHARACTERS = 600


class GraphPageTools(ToolFamily):
    def __init__(self, app: App) -> None:
        self._app = app

    @tool()
    async def outline_graph(
        self,
        project: str,
        around: str | None = None,
        hops: Annotated[int, Field(ge=1, le=MAX_HOPS)] = 2,
        limit: Annotated[int, Field(ge=1, le=MAX_ENTITIES)] = MAX_ENTITIES,
    ) -> ToolResult:
        """Return the names, types and links of a graph without texts: all, or a few steps around one entity."""
        store = await self._open(project)
        outline = await (read_outline(store, limit) if around is None else read_surroundings(store, around, hops))
        return ToolResult(to_json(outline))

    @tool()
    async def read_graph_entity(self, project: str, entity_id: str) -> ToolResult:
        """Read one entity with its observations, relations and memories."""
        found = await read_entity(await self._open(project), entity_id)
        return ToolResult(
            {
                "entity": _describe(found.entity),
                "observations": [_describe(each) for each in found.observations],
                "relations": [
                    {"id": link.id, "verb": link.verb, "outgoing": link.source == entity_id, "entity": _describe(other)}
                    for link, other in found.relations
                ],
                "memories": [_describe(each) for each in found.memories],
            }
        )

    @tool()
    async def find_entities(self, project: str, text: Annotated[str, Field(max_length=200)]) -> ToolResult:
        """Find entities whose name or type contains the text."""
        store = await self._open(project)
        matches = await store.match_text(text, RecordFilter(kinds=(ENTITY,)), MAX_MATCHES)
        return ToolResult({"entities": [_describe(each) for each in await store.get([m.id for m in matches])]})

    @tool()
    async def find_entity(self, project: str, name: str) -> ToolResult:
        """Return the entity of exactly this name."""
        store = await self._open(project)
        found = await store.scan(RecordFilter(kinds=(ENTITY,), name_keys=(compute_name_key(name),)), limit=1)
        if not found:
            raise NotFound("entity", name, hint="It may have been deleted or renamed.")
        return ToolResult({"entity": _describe(found[0])})

    async def _open(self, project: str) -> RecordStore:
        return (await open_stores(self._app.guarded, project))[project]


def _describe(record: Record) -> dict[str, Any]:
    shown = {"id": record.id, "created_at": format_iso(record.created_at)}
    optional = {"name": record.name, "type": record.type, "text": record.text[:SHOWN_CHARACTERS] or None}
    return shown | {name: value for name, value in optional.items() if value is not None}
