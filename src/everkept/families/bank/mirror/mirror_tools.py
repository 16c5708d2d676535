"""The tools that care for the graph's log."""

from typing import Annotated, Any, Literal

from everkept.core.sessions import Call
from everkept.families.bank.banks import Banks
from everkept.families.bank.mirror.graph_state import GraphState
from everkept.families.bank.mirror.mirror import Compacted, Mirror, Rebuilt
from everkept.families.bank.model import StoreId
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, Family, Warned, tool
from everkept.values import Value


class Stats(Value):
    entity_count: Annotated[int, Field(name="entityCount")]
    observation_count: Annotated[int, Field(name="observationCount")]
    relation_count: Annotated[int, Field(name="relationCount")]
    entity_types: Annotated[list[str], Field(name="entityTypes")]
    relation_types: Annotated[list[str], Field(name="relationTypes")]

    @classmethod
    def of(cls, state: GraphState) -> "Stats":
        stats: dict[str, Any] = state.stats()
        return cls(*stats.values())


class RebuiltGraph(Value):
    success: bool
    message: str
    stats: Stats
    taken_in: Annotated[int, Field(name="takenIn")]
    skipped_lines: Annotated[int, Field(name="skippedLines")]
    warnings: list[Warned] | None = None

    @classmethod
    def of(cls, done: Rebuilt) -> "RebuiltGraph":
        taken = done.taken.total
        message = "Graph rebuilt." if not taken else f"Graph rebuilt; {taken} parts were taken in."
        return cls(True, message, Stats.of(done.state), taken, done.skipped, done.warnings or None)


class CompactedGraph(Value):
    success: bool
    message: str
    before: int
    after: int
    copy: str | None = None
    warnings: list[Warned] | None = None

    @classmethod
    def of(cls, done: Compacted) -> "CompactedGraph":
        message = (
            f"Graph compacted; the old log is kept as {done.copy}."
            if done.copy
            else "There is no graph to compact."
        )
        return cls(True, message, done.before, done.after, done.copy, done.warnings or None)


class MaintainedGraph(Value):
    success: bool
    operation: str
    stats: Stats | None = None
    before: int | None = None
    after: int | None = None
    copy: str | None = None
    warnings: list[Warned] | None = None


class MirrorTools(Family):
    """Taking in what came with git, and making the log short."""

    def __init__(self, banks: Banks, mirror: Mirror) -> None:
        self._banks = banks
        self._mirror = mirror

    @tool(Effect.REPEATABLE)
    async def graph_rebuild(self, call: Call, store_id: StoreId | None = None) -> RebuiltGraph:
        """Merge graph/graph.jsonl into the graph; rewrite snapshot, index and graph.md."""
        bank = await self._banks.existing(call, store_id)
        return RebuiltGraph.of(await self._mirror.rebuild(bank, call.report))

    @tool(Effect.DESTROYS)
    async def graph_compact(self, call: Call, store_id: StoreId | None = None) -> CompactedGraph:
        """Rewrite graph/graph.jsonl without its history; a copy is kept beside it."""
        bank = await self._banks.existing(call, store_id)
        return CompactedGraph.of(await self._mirror.compact(bank, call.report))


class MirrorExtras(Family):
    """The same behind one name."""

    def __init__(self, banks: Banks, mirror: Mirror) -> None:
        self._banks = banks
        self._mirror = mirror

    @tool(Effect.DESTROYS)
    async def graph_maintain(
        self,
        call: Call,
        operation: Annotated[
            Literal["rebuild", "compact", "stats"],
            Field("As graph_rebuild, graph_compact; counts."),
        ],
        store_id: StoreId | None = None,
    ) -> MaintainedGraph:
        """Rebuild or compact the graph's log, or count the graph."""
        bank = await self._banks.existing(call, store_id)
        if operation == "compact":
            short = await self._mirror.compact(bank, call.report)
            return MaintainedGraph(
                True,
                operation,
                before=short.before,
                after=short.after,
                copy=short.copy,
                warnings=short.warnings or None,
            )
        if operation == "rebuild":
            done = await self._mirror.rebuild(bank, call.report)
            return MaintainedGraph(
                True, operation, Stats.of(done.state), warnings=done.warnings or None
            )
        warnings = await self._mirror.meet(bank)
        state = await self._mirror.state(bank)
        return MaintainedGraph(True, operation, Stats.of(state), warnings=warnings or None)
