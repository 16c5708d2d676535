from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from bank_graph import Graphing, graph_in
from everkept.core.ports import Library
from everkept.errors import NotFound, Refused


@pytest.fixture
async def graph(library: Library, tmp_path: Path) -> AsyncGenerator[Graphing, None]:
    async with graph_in(tmp_path, library=library) as made:
        made.banking.put("progress.md", "# Progress\n")
        made.banking.put("decisionLog.md", "# Decision Log\n")
        await made.entity("Shop", "service", port=1)
        yield made


async def test_a_pointer_sets_attributes_and_says_so_in_an_observation(graph: Graphing) -> None:
    pointed = await graph(
        "add_doc_pointer", entityNameOrId="shop", docPath="progress.md", heading="Update History", note="see March"
    )
    text = "DOC: progress.md # Update History - see March"
    assert pointed == {
        "success": True,
        "entity": "Shop",
        "actions": [
            "Set attrs.docPath to progress.md",
            "Set attrs.heading to Update History",
            f"Added observation: {text}",
        ],
    }
    opened = await graph("open_nodes", nodes=["Shop"])
    assert opened["entities"][0]["attrs"] == {"port": 1, "docPath": "progress.md", "heading": "Update History"}
    (observation,) = opened["observations"]
    assert observation["text"] == text
    assert observation["source"] == {"kind": "tool", "ref": "graph_add_doc_pointer"}


async def test_a_second_pointer_replaces_the_first_and_its_heading(graph: Graphing) -> None:
    await graph("add_doc_pointer", entityNameOrId="Shop", docPath="progress.md", heading="Old")
    await graph("add_doc_pointer", entityNameOrId="Shop (service)", docPath="decisionLog.md")
    opened = await graph("open_nodes", nodes=["Shop"])
    assert opened["entities"][0]["attrs"] == {"port": 1, "docPath": "decisionLog.md"}


async def test_the_same_pointer_again_changes_nothing(graph: Graphing) -> None:
    await graph("add_doc_pointer", entityNameOrId="Shop", docPath="progress.md")
    store = await graph.store()
    before = await store.get_revision()
    again = await graph("add_doc_pointer", entityNameOrId="Shop", docPath="progress.md")
    assert again["actions"] == ["The pointer already exists"]
    assert await store.get_revision() == before


async def test_a_pointer_and_its_observation_are_one_change(graph: Graphing) -> None:
    store = await graph.store()
    before = await store.get_revision()
    await graph("add_doc_pointer", entityNameOrId="Shop", docPath="progress.md", heading="A")
    assert await store.get_revision() == before + 1


async def test_a_file_that_is_yet_to_be_written_is_a_warning(graph: Graphing) -> None:
    pointed = await graph("add_doc_pointer", entityNameOrId="Shop", docPath="later.md")
    assert [warned["code"] for warned in pointed["warnings"]] == ["file_missing"]


@pytest.mark.parametrize("path", ["../secret.md", "/etc/passwd", "graph/graph.md", "notes.txt"])
async def test_a_path_that_is_no_file_of_the_bank_is_refused(graph: Graphing, path: str) -> None:
    with pytest.raises(Refused):
        await graph("add_doc_pointer", entityNameOrId="Shop", docPath=path)
    assert (await graph("open_nodes", nodes=["Shop"]))["observations"] == []


async def test_nobody_can_be_pointed_from(graph: Graphing) -> None:
    with pytest.raises(NotFound, match='Entity not found: "nobody"'):
        await graph("add_doc_pointer", entityNameOrId="nobody", docPath="progress.md")
