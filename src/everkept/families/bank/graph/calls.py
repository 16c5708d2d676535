"""What every call of the graph's tools begins and ends with: its bank, records and mirror."""

from collections.abc import Iterable

from everkept.core.secrets import Masking
from everkept.core.sessions import Call
from everkept.core.times import Clock
from everkept.families.bank.banks import Bank, BankRecords, Banks
from everkept.families.bank.graph.lookup import Lookup
from everkept.families.bank.graph.reading import GraphReading
from everkept.families.bank.graph.writing import GraphEdits, NotingWriter
from everkept.families.bank.mirror.mirror import Mirror
from everkept.tools.tool import Warned, masking_warnings
from everkept.values import Value


class Warnings(Value):
    """What comes up during a call that succeeds; None where nothing does."""

    found: list[Warned]

    def and_more(self, more: Iterable[Warned] | None = None) -> list[Warned] | None:
        return list(dict.fromkeys([*self.found, *(more or ())])) or None


class GraphCalls:
    """Opens the graph that a call means."""

    def __init__(
        self, banks: Banks, records: BankRecords, mirror: Mirror, clock: Clock, *, mask: bool
    ) -> None:
        self._banks = banks
        self._records = records
        self._mirror = mirror
        self._clock = clock
        self._mask = mask
        self._lookup = Lookup(records)

    async def to_read(self, call: Call, store_id: str | None) -> tuple[GraphReading, Warnings]:
        bank, warnings = await self._met(call, store_id)
        return GraphReading(bank, await self._records.to_read(bank), self._lookup), warnings

    async def to_write(self, call: Call, store_id: str | None) -> tuple[GraphEdits, Warnings]:
        bank, warnings = await self._met(call, store_id)
        store = await self._records.to_write(bank)
        writer = NotingWriter(self._clock, call.tool, call.session.client)
        told = self._mirror.followed(bank)
        return GraphEdits(
            bank, store, self._lookup, writer, Masking(enabled=self._mask), told
        ), warnings

    async def written(self, edits: GraphEdits, warnings: Warnings) -> list[Warned] | None:
        """Ends a call that wrote; gives all that is to be said besides the answer."""
        followed = await self._mirror.follow(edits.bank, edits.store, edits.own())
        # What stood in the way before the write may stand there still.
        codes = {warning.code for warning in followed}
        met = Warnings([warning for warning in warnings.found if warning.code not in codes])
        return met.and_more([*masking_warnings(edits.masking.kinds), *followed])

    async def _met(self, call: Call, store_id: str | None) -> tuple[Bank, Warnings]:
        bank = await self._banks.existing(call, store_id)
        return bank, Warnings(await self._mirror.meet(bank))
