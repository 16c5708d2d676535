import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recollect.core.sessions import Session
from recollect.errors import BankNotFound
from recollect.families.bank.model import BankOptions
from recollect.families.bank.section_records import MOST_INDEXED
from recollect.families.bank.section_search import MOST_TEXT, excerpt
from searching import Searched, searched_in

DECISIONS = """# Decision Log

## Use Postgres

- **Date:** 2026-02-13 10:30:00
- **Decision:** The orders database moves to Postgres.

## Ship on Fridays

- **Decision:** Never deploy the website on a Friday.
"""


@pytest.fixture
async def searched(tmp_path: Path) -> AsyncIterator[Searched]:
    async with searched_in(tmp_path) as made:
        yield made


async def found(searched: Searched, query: str, limit: int = 5) -> list[tuple[str, int]]:
    await searched.sync()
    await searched.indexing.catch_up()
    ranked = await searched.sections.ranked(searched.at.bank, query, limit)
    return [(section.file, section.line) for section in ranked.sections]


async def test_the_best_section_comes_first_with_its_lines(searched: Searched) -> None:
    searched.at.put("decision-log.md", DECISIONS)
    searched.at.put("notes.md", "Something else entirely.\n")
    await searched.sync()
    await searched.indexing.catch_up()
    answer = await searched.sections.sections(searched.at.call(), "database of orders", 3)
    best = answer.hits[0]
    assert (best.file, best.line) == ("decision-log.md", 3)
    assert best.heading == "Decision Log > Use Postgres"
    assert best.uri == "memory-bank://decision-log.md"
    assert "Postgres" in best.text
    assert 0 < best.score <= 1
    assert answer.notices == []


async def test_lines_are_those_of_the_file_as_it_is_now(searched: Searched) -> None:
    searched.at.put("decision-log.md", DECISIONS)
    assert (await found(searched, "Postgres"))[0] == ("decision-log.md", 3)
    searched.at.put("decision-log.md", DECISIONS.replace("# Decision Log", "# Decision Log\n\nx"))
    assert (await found(searched, "Postgres"))[0] == ("decision-log.md", 5)


async def test_an_index_that_may_not_follow_shows_only_what_is_still_there(
    tmp_path: Path,
) -> None:
    async with searched_in(tmp_path) as writing:
        writing.at.put("decision-log.md", DECISIONS)
        await writing.sync()
        options = BankOptions(str(tmp_path), read_only=True)
        async with searched_in(tmp_path, library=writing.at.library, options=options) as reading:
            changed = DECISIONS.replace("orders database", "whole store")
            reading.at.put("decision-log.md", f"---\ntitle: x\n---\n{changed}")
            ranked = await reading.sections.ranked(reading.at.bank, "website Postgres Friday", 5)
            assert [(s.heading, s.line) for s in ranked.sections] == [
                ("Decision Log > Ship on Fridays", 11)
            ]


async def test_a_file_that_vanished_is_no_answer(tmp_path: Path) -> None:
    async with searched_in(tmp_path) as writing:
        writing.at.put("a.md", "Postgres")
        await writing.sync()
        options = BankOptions(str(tmp_path), read_only=True)
        async with searched_in(tmp_path, library=writing.at.library, options=options) as reading:
            (tmp_path / "memory-bank" / "a.md").unlink()
            assert (await reading.sections.ranked(reading.at.bank, "Postgres", 5)).sections == []


async def test_of_a_very_long_file_the_beginning_is_ranked_and_the_answer_says_so(
    searched: Searched,
) -> None:
    line = "- filler " + "x" * 1_900 + "\n"
    text = "# Long\n\nPostgres\n\n" + line * (MOST_INDEXED // len(line) + 10) + "\n# End\n\nMySQL\n"
    searched.at.put("long.md", text)
    ranked = await searched.sections.ranked(searched.at.bank, "Postgres MySQL", 3)
    assert [section.line for section in ranked.sections][:1] == [1]
    assert "MySQL" not in "".join(section.text for section in ranked.sections)
    assert [n for n in ranked.notices if "beginning" in n and "long.md" in n]


async def test_without_a_bank_there_is_nothing_to_search(searched: Searched) -> None:
    call = searched.at.call()
    call.session.bank = os.fspath(searched.at.home / "nowhere")
    with pytest.raises(BankNotFound):
        await searched.sections.sections(call, "x", 3)
    assert Session().bank is None


def test_a_long_section_is_shown_from_where_it_answers() -> None:
    text = "## Log\n\n" + "".join(f"- entry {i}\n" for i in range(200)) + "- the login form\n"
    shown = excerpt(text, "What about the login form?")
    assert shown.endswith("- the login form")
    assert len(shown) <= MOST_TEXT + 3
    assert excerpt("short\n", "x") == "short"
