import asyncio
from pathlib import Path

import pytest

from bank_graph import CountingRecords, Graphing, SilentMirror, graph_in, offer
from everkept.core.commits import collect_touched
from everkept.core.records import Record, RecordFilter, RecordLink
from everkept.core.text import compute_digest
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import AmbiguousName
from everkept.graph.entities import ENTITY, OBSERVATION
from memory_bank import HomeRecords
from records import batch, entity, link

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


async def kept(graph: Graphing, kind: str = ENTITY) -> list[Record]:
    return await (await graph.store()).scan(RecordFilter(kinds=(kind,)))


async def put(graph: Graphing, *items: Record | RecordLink) -> None:
    await (await graph.store()).commit(batch(*items))


def stub(name: str, **more: object) -> Record:
    """As a relation leaves it that named an entity before anybody described it."""
    fields = {"type": "unknown", "variant": "unknown", "facets": {"stub": True}}
    return entity(name, **(fields | more))


async def test_secrets_stay_out_of_everything_that_is_written(graph: Graphing) -> None:
    made = await graph(
        "upsert_entity", name=f"key {SECRET}", entityType="credential", attrs={"password": "hunter2hunter2", "port": 1}
    )
    assert made["warnings"][0]["code"] == "secret_masked"
    assert made["entity"]["attrs"]["port"] == 1
    added = await graph("add_observation", entity=made["entity"]["id"], text=f"It is {SECRET}")
    assert added["warnings"][0]["code"] == "secret_masked"
    said = {"from": f"key {SECRET}", "relationType": f"opens {SECRET}", "to": f"key {SECRET}"}
    linked = await graph("link_entities", **said)
    assert linked["warnings"][0]["code"] == "secret_masked"
    everything = str([*await kept(graph), *await kept(graph, OBSERVATION)])
    everything += str(await (await graph.store()).scan_links(deleted=None))
    assert SECRET not in everything
    assert "hunter2" not in everything
    assert await graph("unlink_entities", **said) == {"success": True}
    assert await (await graph.store()).scan_links(deleted=False) == []


async def test_secrets_are_kept_where_masking_is_off(tmp_path: Path) -> None:
    async with graph_in(tmp_path, mask=False) as graph:
        made = await graph("upsert_entity", name=SECRET, entityType="key", attrs={"a": SECRET})
    assert made["entity"]["name"] == SECRET
    assert made["entity"]["attrs"] == {"a": SECRET}
    assert "warnings" not in made


async def test_an_upsert_describes_what_only_a_relation_has_named(graph: Graphing) -> None:
    named = stub("shop", facets={"stub": True, "colour": "red"})
    await put(graph, named, entity("user"), link("user", "visits", "shop"))
    made = await graph("upsert_entity", name="Shop", entityType="service", attrs={"a": 1})
    (record,) = [r for r in await kept(graph) if r.id == "shop"]
    assert (record.name, record.type, record.variant) == ("Shop", "service", "service")
    assert record.facets == {"colour": "red", "attrs": {"a": 1}}
    assert made["entity"]["attrs"] == {"a": 1}
    relations = (await graph("open_nodes", nodes=["Shop"]))["relations"]
    assert [r["toId"] for r in relations] == [made["entity"]["id"]]


async def test_other_facets_of_an_entity_survive_new_attributes(graph: Graphing) -> None:
    await put(graph, entity("shop", variant="thing", facets={"colour": "red", "attrs": {"a": 1}}))
    await graph("upsert_entity", name="SHOP", entityType="Thing", attrs={"b": 2})
    (record,) = await kept(graph)
    assert record.facets == {"colour": "red", "attrs": {"b": 2}}
    await graph("upsert_entity", name="SHOP", entityType="Thing", attrs={})
    (record,) = await kept(graph)
    assert record.facets == {"colour": "red"}


@pytest.mark.parametrize("variant", ["thing", "=Shop", "thing=Shop"])
async def test_an_upsert_finds_what_another_family_has_made(graph: Graphing, variant: str) -> None:
    await put(graph, entity("Shop", variant=variant))
    await graph("upsert_entity", name=" shop ", entityType="THING", attrs={"a": 1})
    (record,) = await kept(graph)
    assert record.id == "Shop"
    assert record.facets == {"attrs": {"a": 1}}


async def test_of_two_exact_spellings_an_upsert_means_its_own(graph: Graphing) -> None:
    await put(graph, entity("Shop", variant="=Shop"), entity("shop", variant="=shop"))
    await graph("upsert_entity", name="shop", entityType="thing", attrs={"a": 1})
    assert {r.id: dict(r.facets) for r in await kept(graph)} == {"Shop": {}, "shop": {"attrs": {"a": 1}}}
    with pytest.raises(AmbiguousName):
        await graph("upsert_entity", name="SHOP", entityType="thing")


async def test_a_text_that_another_family_has_stored_is_not_doubled(graph: Graphing) -> None:
    await graph.entity("Shop")
    (owner,) = await kept(graph)
    there = Record(
        id="theirs",
        kind=OBSERVATION,
        text="Is open",
        name_key=compute_digest("Is open"),
        parent=owner.id,
        created_at=1,
        updated_at=1,
    )
    await put(graph, there)
    added = await graph("add_observation", entity="Shop", text="Is open")
    assert added["observation"]["timestamp"] == "1970-01-01T00:00:00.000Z"
    assert "source" not in added["observation"]
    assert [r.id for r in await kept(graph, OBSERVATION)] == ["theirs"]


async def test_relations_that_differ_in_case_alone_are_unlinked_together(graph: Graphing) -> None:
    await put(graph, entity("a"), entity("b"), link("a", "Uses", "b"), link("a", "uses", "b"))
    asked = {"from": "a", "relationType": "USES", "to": "b"}
    await graph("unlink_entities", **asked)
    assert await (await graph.store()).scan_links(deleted=False) == []


async def test_many_at_once_make_one_entity(graph: Graphing) -> None:
    await graph.store()
    spellings = ["Shop API", "shop api", " SHOP  api"] * 10
    made = await asyncio.gather(*(graph("upsert_entity", name=name, entityType="service") for name in spellings))
    assert len({answer["entity"]["id"] for answer in made}) == 1
    assert len(await kept(graph)) == 1


async def test_two_processes_make_one_entity_and_lose_nothing(tmp_path: Path) -> None:
    libraries = [SqliteLibrary(tmp_path / "library") for _ in range(2)]
    async with graph_in(tmp_path, library=libraries[0]) as one:
        await one.store()
        async with graph_in(tmp_path, library=libraries[1]) as other:
            await asyncio.gather(*(side.entity("Shop", "service") for side in (one, other) for _ in range(10)))
            await asyncio.gather(
                *(
                    side.observe("Shop", f"Number {number} of {who}")
                    for number in range(10)
                    for who, side in enumerate((one, other))
                ),
                *(side.link("Shop", "is", "Shop") for side in (one, other) for _ in range(5)),
            )
            opened = await other("open_nodes", nodes=["Shop"])
    assert len(opened["entities"]) == 1
    assert len(opened["observations"]) == 20
    assert len(opened["relations"]) == 1


async def test_an_upsert_asks_a_handful_of_questions_however_many_entities_there_are(graph: Graphing) -> None:
    many = [entity(f"entity {n}", variant="thing", name_key=f"entity {n}") for n in range(500)]
    await put(graph, *many)
    records = CountingRecords(HomeRecords(graph.banking.library))
    offer(graph.banking, records, SilentMirror())
    for name in ("entity 7", "entity new"):
        records.begin()
        await graph.entity(name, port=1)
        assert records.calls == {"scan": 1, "commit": 1}
        assert records.rows["scan"] <= 1


async def test_one_entity_has_one_id_whichever_way_its_letters_are_composed(graph: Graphing) -> None:
    composed, decomposed = "Größe", "Gro\u0308ße"
    assert await graph.entity(composed, "Konzept") == await graph.entity(decomposed, "konzept")
    (record,) = await kept(graph)
    assert record.name == composed


async def test_an_edit_records_what_it_touched(graph: Graphing) -> None:
    with collect_touched() as noted:
        await graph("upsert_entity", name="Cart", entityType="class", attrs={})
    assert list(noted.ids) == [record.id for record in await kept(graph)]
