"""The files below `graph/`: what is kept of them, and what must not be."""

from everkept.core.records import Ref
from everkept.families.bank.graph.graph_folder import read_mirrored_banks
from graph_mirror import Mirroring, entity_deleted, observed, upserted

SECRET = "Secret Street"


def holders(here: Mirroring) -> set[str]:
    files = [path for path in here.banking.folder.rglob("*") if path.is_file()]
    return {path.name for path in files if SECRET.encode() in path.read_bytes()}


async def test_what_is_purged_leaves_every_file_that_was_made_of_the_log(here: Mirroring) -> None:
    await here.observe("Ada", "likes tea")
    await here.observe("Ada", f"lives in {SECRET}")
    await here.mirror.compact(here.bank)
    await here.mirror.compact(here.bank)
    assert len(holders(here)) == 4
    await here.purge(f"lives in {SECRET}")
    await here.follow()
    assert holders(here) == set()
    assert "likes tea" in here.banking.get("graph/graph.snapshot.json")
    assert "likes tea" in here.banking.get("graph/graph.md")
    assert not list(here.path.parent.glob("*.bak"))


async def test_a_copy_and_a_view_go_though_the_log_has_nothing_of_it_any_more(here: Mirroring) -> None:
    await here.observe("Ada", f"lives in {SECRET}")
    await here.mirror.refresh_view(here.bank)
    await here.mirror.compact(here.bank)
    store = await here.store()
    [gone] = await here.observations()
    await here.forget(gone.text)
    before = here.path.read_bytes()
    await store.purge([Ref("record", gone.id)])
    await here.follow()
    assert here.path.read_bytes() != before
    assert holders(here) == set()


async def test_a_view_without_a_snapshot_is_written_anew_by_a_purge(here: Mirroring) -> None:
    await here.observe("Ada", f"lives in {SECRET}")
    await here.follow()
    await here.mirror.refresh_view(here.bank)
    assert holders(here) == {"graph.jsonl", "graph.md"}
    await here.purge(f"lives in {SECRET}")
    await here.follow()
    assert holders(here) == set()
    assert "Ada" in here.banking.get("graph/graph.md")


async def test_files_that_were_never_written_are_not_written_by_a_purge(here: Mirroring) -> None:
    await here.observe("Ada", f"lives in {SECRET}")
    await here.follow()
    await here.purge(f"lives in {SECRET}")
    await here.follow()
    assert [path.name for path in here.path.parent.iterdir()] == ["graph.jsonl"]


async def test_earlier_attributes_of_what_is_purged_by_half_leave_the_log(here: Mirroring) -> None:
    """The name lives on, under the same id: only the words tell that something is gone."""
    await here.upsert("Ada", home=SECRET)
    await here.follow()
    entity = await here.entity("Ada")
    assert entity is not None
    await here.delete("Ada")
    await here.upsert("Ada")
    await here.follow()
    await (await here.store()).purge([entity.ref])
    await here.follow()
    assert holders(here) == set()
    assert here.told() == await here.stored() == ({("Ada", "thing"): {}}, set(), set())


async def test_lines_that_nobody_could_read_go_with_a_purge(here: Mirroring) -> None:
    await here.observe("Ada", f"lives in {SECRET}")
    await here.observe("Ada", "likes tea")
    await here.follow()
    with here.path.open("ab") as log:
        log.write(f"<<<<<<< {SECRET}\n".encode())
    await here.meet()
    await here.purge(f"lives in {SECRET}")
    await here.follow()
    assert holders(here) == set()
    assert here.told() == await here.stored()


async def test_what_is_rewritten_for_good_leaves_every_file(here: Mirroring) -> None:
    await here.upsert("Ada", home=SECRET)
    await here.mirror.compact(here.bank)
    entity = await here.entity("Ada")
    assert entity is not None
    await (await here.store()).redact([entity.ref], lambda _, values: {**values, "facets": {}})
    await here.follow()
    assert holders(here) == set()
    assert here.told() == await here.stored()


async def test_each_bank_with_a_log_is_known_with_its_project(here: Mirroring) -> None:
    library = here.banking.library
    assert await read_mirrored_banks(library) == {}
    here.append(
        upserted("Ada", here.clock()), observed("Ada", "likes tea", here.clock()), entity_deleted("Ada", here.clock())
    )
    await here.meet()
    project = await here.banking.records.find_project_id(here.bank)
    assert await read_mirrored_banks(library) == {here.bank.address: project}
