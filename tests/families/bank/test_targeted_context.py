import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bank_graph import SilentMirror
from bank_search import Searched, searched_in
from everkept.errors import BankNotFound, InvalidInput
from everkept.families.bank.graph.tools import BankGraphTools, DocPointerTools
from everkept.families.bank.targeted_context import TargetedTools
from examples import examples

DECISIONS = "# Decision Log\n\n## Use Postgres\n\n- **Decision:** Orders go to Postgres.\n"
ACTIVE = "# Current Context\n\n## Ongoing Tasks\n\n- Move the orders\n"


@pytest.fixture
async def searched(tmp_path: Path) -> AsyncIterator[Searched]:
    async with searched_in(tmp_path) as made:
        at, mirror = made.at, SilentMirror()
        at.offer(
            BankGraphTools(at.banks, at.records, mirror, at.clock, mask=True),
            DocPointerTools(at.banks, at.records, mirror, at.clock, mask=True),
            TargetedTools(at.banks, at.records, mirror, made.sections, at.clock, mask=True),
        )
        at.put("decision-log.md", DECISIONS)
        at.put("active-context.md", ACTIVE)
        at.put("notes.md", "# Notes\n\nThe checkout calls the orders service.\n")
        await at("graph_upsert_entity", name="Orders", entityType="service")
        await at("graph_upsert_entity", name="Shop", entityType="service")
        await at("graph_link_entities", **{"from": "Shop", "to": "Orders", "relationType": "uses"})
        await at("graph_add_doc_pointer", entityNameOrId="Orders", docPath="decision-log.md", heading="Use Postgres")
        yield made


async def targeted(searched: Searched, query: str = "Orders", **more: Any) -> dict[str, Any]:
    return await searched.at("get_targeted_context", query=query, **more)


def used(answer: dict[str, Any]) -> int:
    graph = answer["graph"]
    parts = [graph["hits"], *graph["opened"].values(), answer["pointers"], answer["excerpts"]]
    items = [len(json.dumps(item, ensure_ascii=False)) + 2 for part in parts for item in part]
    return answer["digest"]["chars"] + sum(items)


async def test_the_graph_leads_to_the_files(searched: Searched) -> None:
    answer = await targeted(searched)
    assert "Move the orders" in answer["digest"]["text"]
    assert answer["digest"]["chars"] == len(answer["digest"]["text"])
    (hit,) = answer["graph"]["hits"]
    assert (hit["name"], hit["score"], hit["matchedIn"]) == ("Orders", 100, ["name"])
    opened = answer["graph"]["opened"]
    assert {entity["name"] for entity in opened["entities"]} == {"Orders", "Shop"}
    assert [relation["relationType"] for relation in opened["relations"]] == ["uses"]
    pointer = answer["pointers"][0]
    assert (pointer["path"], pointer["headingHint"]) == ("decision-log.md", "Use Postgres")
    assert pointer["entityId"] == hit["id"]
    excerpt = answer["excerpts"][0]
    assert excerpt["path"] == "decision-log.md"
    assert excerpt["excerpt"].startswith("## Use Postgres")
    assert excerpt["chars"] == len(excerpt["excerpt"])
    assert answer["budget"] == {"maxChars": 8_000, "usedChars": used(answer), "truncated": False}


async def test_what_the_graph_does_not_know_is_found_in_the_files(searched: Searched) -> None:
    answer = await targeted(searched, "checkout")
    assert answer["graph"]["hits"] == []
    assert [excerpt["path"] for excerpt in answer["excerpts"]][:1] == ["notes.md"]


async def test_so_many_files_are_quoted_as_are_wanted(searched: Searched) -> None:
    for i in range(9):
        searched.at.put(f"orders-{i}.md", f"# Orders {i}\n\nAbout orders.\n")
    assert len((await targeted(searched, maxFiles=3))["excerpts"]) == 3


async def test_a_pointer_to_a_file_that_is_gone_is_not_quoted(searched: Searched) -> None:
    (searched.at.folder / "decision-log.md").unlink()
    answer = await targeted(searched)
    assert "decision-log.md" not in [excerpt["path"] for excerpt in answer["excerpts"]]


async def test_what_does_not_fit_is_left_out_and_the_answer_says_so(searched: Searched) -> None:
    searched.at.put("decision-log.md", DECISIONS + "- more of it\n" * 1_000)
    answer = await targeted(searched, maxChars=1_000)
    assert answer["budget"]["truncated"]
    assert used(answer) <= 1_000
    assert answer["excerpts"][0]["excerpt"].startswith("## Use Postgres")


async def test_bad_input_and_a_missing_bank_are_errors(searched: Searched) -> None:
    for arguments in ({"query": " "}, {"query": "x", "maxChars": 499}, {"query": "x", "graphDepth": 3}):
        with pytest.raises(InvalidInput):
            await searched.at("get_targeted_context", **arguments)
    searched.at.session.bank = str(searched.at.home / "nowhere")
    with pytest.raises(BankNotFound):
        await targeted(searched)


@given(
    budget=st.integers(min_value=500, max_value=6_000),
    lines=st.lists(st.text(alphabet='orders "\\\n\tü€', max_size=300), max_size=20),
    files=st.integers(min_value=1, max_value=10),
)
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_no_answer_is_larger_than_its_budget(
    searched: Searched, budget: int, lines: list[str], files: int
) -> None:
    searched.at.put("decision-log.md", DECISIONS + "\n".join(lines))
    searched.at.put("more.md", "orders\n" * 1_000)
    answer = await targeted(searched, maxChars=budget, maxFiles=files)
    assert used(answer) == answer["budget"]["usedChars"] <= budget
    assert answer["digest"]["chars"] <= min(1_500, budget // 5)
