"""Parts of the graph: every engine gives the same rows as the questions that they stand for."""

import pytest

from everkept.core.answers import Edge, Node, Selection, Subgraph
from everkept.core.fallback_answers import ask_for_subgraph
from everkept.core.ports import RecordStore
from everkept.core.records import Delete
from records import DAY_ONE, batch, entity, link, link_ref, memory, note, record_ref

KINDS = ("entity", "observation")


@pytest.fixture
async def graph(store: RecordStore) -> RecordStore:
    """Entities not in the order of their names, with what is deleted and what is not theirs."""
    await store.commit(
        batch(
            entity("Cid", facets={"stub": True}),
            entity("Ada", type="person", updated_at=DAY_ONE + 5),
            entity("Bob"),
            entity("Gone"),
            entity("Ada", id="ada (cat)", variant="cat", type="cat"),
            memory("m"),
            note("Ada", "writes", created_at=DAY_ONE + 2),
            note("Bob", "reads"),
            note("Ada", "counts", created_at=DAY_ONE + 1),
            note("Ada", "gone"),
            note("Ada", "section", kind="section"),
            note("Gone", "gone with it"),
            link("Bob", "knows", "Ada", created_at=DAY_ONE + 9),
            link("Ada", "knows", "Bob", created_at=DAY_ONE + 8),
            link("Ada", "is", "Ada"),
            link("Cid", "knows", "Bob"),
            link("Ada", "knew", "Cid"),
            link("Ada", "knows", "Gone"),
            link("m", "about", "Ada"),
            link("Ada", "about", "m"),
        )
    )
    await store.commit(batch(Delete(record_ref("Gone")), Delete(record_ref("gone")), Delete(link_ref("Ada knew Cid"))))
    return store


def told(found: Subgraph) -> tuple[list[tuple[str, list[str]]], list[str]]:
    nodes = [(node.id, [leaf_id for leaf_id, _, _ in node.leaves]) for node in found.nodes]
    return nodes, [edge.id for edge in found.edges]


ADA, BOB, CAT = ("Ada", ["writes", "counts"]), ("Bob", ["reads"]), ("ada (cat)", list[str]())
CID = ("Cid", list[str]())


@pytest.mark.parametrize(
    ("wanted", "nodes", "edges"),
    [
        (Selection(*KINDS), [CID, ADA, BOB, CAT], ["Ada is Ada", "Cid knows Bob", "Ada knows Bob", "Bob knows Ada"]),
        (
            Selection(*KINDS, ids=["Bob", "none", "m", "Gone", "Ada", "Bob"], direction="out"),
            [BOB, ADA],
            ["Ada is Ada", "Ada knows Bob", "Bob knows Ada"],
        ),
        (Selection(*KINDS, ids=["Cid"]), [CID], ["Cid knows Bob"]),
        (Selection(*KINDS, ids=["ada (cat)"]), [CAT], []),
        (Selection(*KINDS, ids=[]), [], []),
        (Selection(*KINDS, order="name", limit=2, direction="out"), [ADA, CAT], ["Ada is Ada", "Ada knows Bob"]),
        (
            Selection(*KINDS, order="name", after=("ada", "cat"), limit=9),
            [BOB, CID],
            ["Cid knows Bob", "Ada knows Bob", "Bob knows Ada"],
        ),
        (Selection(*KINDS, order="name", after=("cid", "")), [], []),
        (Selection(*KINDS, limit=1), [CID], ["Cid knows Bob"]),
        (Selection("memory", "observation"), [("m", [])], []),
    ],
)
async def test_a_part_of_the_graph_has_what_belongs_to_it(
    graph: RecordStore, wanted: Selection, nodes: list[tuple[str, list[str]]], edges: list[str]
) -> None:
    found = await graph.read_subgraph(wanted)
    assert told(found) == (nodes, edges)
    assert found.has_more is (wanted.limit in (1, 2))
    assert found == await ask_for_subgraph(graph, wanted)


async def test_a_node_and_an_edge_say_what_is_stored(graph: RecordStore) -> None:
    found = await graph.read_subgraph(Selection(*KINDS, ids=["ada (cat)", "Cid", "Bob"]))
    assert found.nodes == [
        Node("ada (cat)", "Ada", "cat", "ada", "cat", {}, DAY_ONE, DAY_ONE, []),
        Node("Cid", "Cid", "thing", "cid", "", {"stub": True}, DAY_ONE, DAY_ONE, []),
        Node("Bob", "Bob", "thing", "bob", "", {}, DAY_ONE, DAY_ONE, [("reads", "reads", DAY_ONE)]),
    ]
    assert found.edges[-1] == Edge("Bob knows Ada", "Bob", "Bob", "knows", "Ada", "Ada", DAY_ONE + 9)
