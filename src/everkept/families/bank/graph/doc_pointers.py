"""The tool that ties an entity of the graph to a file of the bank and a heading in it."""

from typing import Annotated

from everkept.core.sessions import Call
from everkept.core.times import Clock
from everkept.families.bank.bank_files import found_name
from everkept.families.bank.banks import BankRecords, Banks
from everkept.families.bank.graph.calls import GraphCalls
from everkept.families.bank.graph_model import TEXT_LIMIT, DocPointer
from everkept.families.bank.mirror.mirror import Mirror
from everkept.graph.entities import NAME_LIMIT
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, Family, Warned, tool


class DocPointerTools(Family):
    """Pointers from entities to files, which get_targeted_context quotes from."""

    def __init__(
        self, banks: Banks, records: BankRecords, mirror: Mirror, clock: Clock, *, mask: bool
    ) -> None:
        self._graphs = GraphCalls(banks, records, mirror, clock, mask=mask)

    @tool(Effect.REPEATABLE)
    async def graph_add_doc_pointer(
        self,
        call: Call,
        entity: Annotated[
            str,
            Field(
                "Name, `name (type)` or id.",
                name="entityNameOrId",
                max_length=NAME_LIMIT * 2,
                blank=False,
            ),
        ],
        doc_path: Annotated[str, Field("File at the bank's root.", name="docPath", blank=False)],
        heading: Annotated[str, Field("Heading inside it.", max_length=NAME_LIMIT)] | None = None,
        note: Annotated[str, Field("Remark.", max_length=TEXT_LIMIT)] | None = None,
    ) -> DocPointer:
        """Tie an entity to a bank file and heading, for get_targeted_context to quote."""
        edits, warnings = await self._graphs.to_write(call, None)
        found = await found_name(edits.bank, doc_path)
        owner, actions = await edits.point(entity, found or doc_path, heading, note)
        said = await self._graphs.written(edits, warnings) or []
        if found is None:
            said.append(Warned("file_missing", f"The bank has no file {doc_path} yet."))
        return DocPointer(True, owner.name or "", actions, said or None)
