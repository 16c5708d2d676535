"""Rows in answers that do not grow with what is stored, however many of them there are."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from everkept.engines.surreal.connecting.connection import TooLarge
from everkept.engines.surreal.records.rows import Row, id_of
from everkept.engines.surreal.records.tables import Tables
from everkept.values import Value

PAGE = 500  # rows of records or links at a time


class Question(Value):
    """The parts of a statement; `fields` must have the id."""

    fields: str
    source: str
    condition: str
    values: Mapping[str, Any]
    order: str = ""

    def rows(self, most: int) -> str:
        order = f" ORDER BY {self.order}" if self.order else ""
        return f"SELECT {self.fields} FROM {self._fitting}{order} LIMIT {most}"

    def ids(self, most: int | None) -> str:
        order = f" ORDER BY {self.order}" if self.order else ""
        # Some versions sort only by what they give.
        fields = f"id, {self.order.replace(' DESC', '')}" if self.order else "id"
        limit = "" if most is None else f" LIMIT {most}"
        return f"SELECT VALUE id FROM (SELECT {fields} FROM {self._fitting}{order}{limit})"

    def among(self, ids: str) -> str:
        return f"SELECT {self.fields} FROM {ids} WHERE {self.condition}"

    @property
    def _fitting(self) -> str:
        return f"{self.source} WHERE {self.condition}"


async def every(tables: Tables, question: Question, most: int | None = None) -> list[Row]:
    return [row async for page in pages(tables, question, PAGE, most) for row in page]


async def pages(
    tables: Tables, question: Question, size: int, most: int | None = None
) -> AsyncGenerator[list[Row], None]:
    """All that fit, at most `size` at once, and fewer where the database finds that too much.

    Few are asked for in one go. Of many the ids come first, which are short: to ask for what
    follows a row would sort, or read, all of them for each page.
    """
    wanted = size if most is None else min(size, most)
    seen: set[str] = set()
    try:
        first = await tables.ask(question.rows(wanted), **question.values)
    except TooLarge:
        size = max(1, size // 2)
    else:
        yield first
        if len(first) < wanted or wanted == most:
            return
        seen = {id_of(row["id"]) for row in first}
    ids = await tables.ask(question.ids(most), **question.values)
    left = [each for each in ids if id_of(each) not in seen]
    while left:
        try:
            page = await tables.ask(question.among("$page"), page=left[:size], **question.values)
        except TooLarge:
            if size == 1:
                raise
            size //= 2
            continue
        yield page
        left = left[size:]
