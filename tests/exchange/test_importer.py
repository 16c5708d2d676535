"""An export taken in: exactly once, wherever and however often."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everkept.accounts.account_library import format_private_name
from everkept.accounts.accounts import Accounts
from everkept.core.ports import Library
from everkept.core.records import Delete, Record, RecordFilter, Update
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import InvalidInput, ProjectArchived
from everkept.exchange.exporter import export_library
from everkept.exchange.importer import ExportImport, import_export
from everkept.families.memories.memory_identity import compute_text_key
from everkept.values import replace
from records import DAY_ONE, MILLISECOND, batch, entity, link, note, record_ref

ANNA = "account.user.anna"
LATER = DAY_ONE + 1_000 * MILLISECOND


def unheard(_done: int, _total: int) -> None:
    """Nobody watches."""


def clock() -> int:
    return LATER


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[Library]:
    """Where exports are taken in."""
    library = SqliteLibrary(tmp_path / "other", clock=clock)
    yield library
    await library.close()


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Library]:
    """A library with a project, something of the user's, and a conversation."""
    library = SqliteLibrary(tmp_path / "shop", clock=lambda: DAY_ONE)
    project = await library.create("shop", "What we sell.")
    await library.link_workspace("/home/dev/shop", project)
    _, store = await library.open("shop")
    await store.commit(batch(entity("Ada"), entity("Engine"), note("Ada", "wrote it")))
    await store.commit(batch(link("Ada", "builds", "Engine"), memory("m1", "We use tabs")))
    await (await library.open_user_store()).commit(batch(memory("m2", "Dark mode", scope="user")))
    head = Record("conv_1", "conversation", DAY_ONE, DAY_ONE, name="A talk", facets={"turns": 2})
    turns = [turn(1), turn(2)]
    await (await library.open_history_store()).commit(batch(head, *turns, derived=True))
    yield library
    await library.close()


def memory(record_id: str, text: str, **more: Any) -> Record:
    fields: dict[str, Any] = {
        "id": record_id,
        "kind": "memory",
        "text": text,
        "name_key": compute_text_key(text),
        "type": "semantic",
        "scope": "project",
        "importance": 0.5,
        "tags": ("style",),
        "created_at": DAY_ONE,
        "updated_at": DAY_ONE,
    }
    return Record(**(fields | more))


def turn(number: int) -> Record:
    return Record(
        f"turn_{number}",
        "turn",
        DAY_ONE,
        DAY_ONE,
        text=f"Said {number}",
        type="said",
        parent="conv_1",
        session="s",
        position=number,
        scope="/home/dev/shop",
    )


async def moved(shop: Library, other: Library, folder: Path, **more: Any) -> ExportImport:
    await export_library(shop, folder, unheard)
    return await import_export(other, folder, clock, unheard, **more)


def files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()
    }


async def test_an_export_of_what_was_taken_in_is_the_same(shop: Library, other: Library, tmp_path: Path) -> None:
    outcome = await moved(shop, other, tmp_path / "one")
    assert (outcome.records, outcome.links, outcome.projects) == (8, 1, ["shop"])
    await export_library(other, tmp_path / "two", unheard)
    assert files(tmp_path / "two") == files(tmp_path / "one")


async def test_taking_it_in_again_changes_nothing(shop: Library, other: Library, tmp_path: Path) -> None:
    await moved(shop, other, tmp_path / "one")
    _, store = await other.open("shop")
    revision = await store.get_revision()
    again = await import_export(other, tmp_path / "one", clock, unheard)
    assert (again.records, again.links, again.updated, again.unchanged) == (0, 0, 0, 9)
    assert await store.get_revision() == revision


async def test_the_same_thing_under_another_id_stays_one(shop: Library, other: Library, tmp_path: Path) -> None:
    await other.create("shop", "")
    _, store = await other.open("shop")
    ours = entity("Ada", id="ours")
    await store.commit(batch(ours, note("ours", "is ours")))
    await moved(shop, other, tmp_path / "one")
    told = await store.scan_links(deleted=False)
    assert [(found.source, found.target) for found in told] == [("ours", "Engine")]
    [wrote] = await store.get(["wrote it"])
    assert wrote.parent == "ours"
    assert not await store.get(["Ada"])


async def test_what_was_forgotten_here_stays_forgotten(shop: Library, other: Library, tmp_path: Path) -> None:
    await moved(shop, other, tmp_path / "one")
    _, store = await other.open("shop")
    await store.commit(batch(Delete(record_ref("Ada")), Delete(record_ref("m1"))))
    again = await import_export(other, tmp_path / "one", clock, unheard)
    assert again.forgotten == 3  # Ada, what was said of her, and the memory
    assert again.left_out == 0 or again.links == 0
    assert not await store.get(["Ada", "m1", "wrote it"])


async def test_the_newer_of_two_changes_counts(shop: Library, other: Library, tmp_path: Path) -> None:
    await moved(shop, other, tmp_path / "one")
    _, theirs = await shop.open("shop")
    _, ours = await other.open("shop")
    await theirs.commit(batch(Update("m1", {"text": "We use spaces"}, 1), at=LATER + 5))
    await ours.commit(batch(Update("Engine", {"type": "machine"}, 1), at=LATER + 5))
    await theirs.commit(batch(Update("Engine", {"type": "motor"}, 1), at=LATER))
    again = await moved(shop, other, tmp_path / "one")
    assert (again.updated, again.older) == (1, 1)
    assert [record.text for record in await ours.get(["m1"])] == ["We use spaces"]
    assert [record.type for record in await ours.get(["Engine"])] == ["machine"]


async def test_a_bad_line_is_named_and_nothing_is_taken_in(shop: Library, other: Library, tmp_path: Path) -> None:
    await export_library(shop, tmp_path / "one", unheard)
    path = tmp_path / "one" / "projects" / "shop" / "records.jsonl"
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([*lines[:2], "rubbish", *lines[2:]]), encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"records\.jsonl, line 3: it is not JSON"):
        await import_export(other, tmp_path / "one", clock, unheard)
    assert await other.list_projects() == []
    assert sum((await (await other.open_user_store()).count_live()).values()) == 0


async def test_what_belongs_to_nothing_is_left_out(shop: Library, other: Library, tmp_path: Path) -> None:
    await export_library(shop, tmp_path / "one", unheard)
    path = tmp_path / "one" / "projects" / "shop" / "records.jsonl"
    lines = path.read_text("utf-8").splitlines()
    kept = [line for line in lines if json.loads(line)["id"] != "Ada"]
    path.write_text("\n".join(kept), encoding="utf-8")
    outcome = await import_export(other, tmp_path / "one", clock, unheard)
    assert outcome.left_out == 2  # what was said of her, and the link


async def test_secrets_of_a_foreign_export_are_masked(shop: Library, other: Library, tmp_path: Path) -> None:
    await export_library(shop, tmp_path / "one", unheard)
    path = tmp_path / "one" / "projects" / "shop" / "records.jsonl"
    secret = "ghp_" + "a1B2" * 9
    path.write_text(path.read_text("utf-8").replace("We use tabs", secret), encoding="utf-8")
    outcome = await import_export(other, tmp_path / "one", clock, unheard)
    assert outcome.masked
    _, store = await other.open("shop")
    [kept] = await store.get(["m1"])
    assert secret not in kept.text


async def test_turns_that_were_forgotten_do_not_come_back(shop: Library, other: Library, tmp_path: Path) -> None:
    history = await shop.open_history_store()
    tombstone = Record("grave_1", "turn", LATER, LATER, type="forgotten", parent="conv_1")
    await export_library(shop, tmp_path / "whole", unheard)
    await history.purge([record_ref("turn_1")])
    await history.commit(batch(tombstone, Delete(tombstone.ref), at=LATER, derived=True))
    await moved(shop, other, tmp_path / "one")
    again = await import_export(other, tmp_path / "whole", clock, unheard)
    assert again.forgotten == 1
    assert [r.id for r in await (await other.open_history_store()).get(["turn_1", "turn_2"])] == ["turn_2"]
    await export_library(other, tmp_path / "two", unheard)
    assert files(tmp_path / "two") == files(tmp_path / "one")


async def test_conversations_of_an_excluded_folder_are_left_out(shop: Library, other: Library, tmp_path: Path) -> None:
    outcome = await moved(shop, other, tmp_path / "one", excluded=["/home/dev"])
    assert outcome.left_out == 2
    assert not await (await other.open_history_store()).get(["turn_1", "turn_2"])


async def test_a_folder_finds_its_project_again(shop: Library, other: Library, tmp_path: Path) -> None:
    await moved(shop, other, tmp_path / "one")
    project = await other.find_workspace_project("/home/dev/shop")
    assert project is not None
    assert (project.name, project.description) == ("shop", "What we sell.")


async def test_who_is_interrupted_goes_on(shop: Library, other: Library, tmp_path: Path) -> None:
    """Everything is in commits of which each can be the last."""
    _, store = await shop.open("shop")
    await store.commit(batch(*(memory(f"x{n}", f"Fact {n}") for n in range(400))))
    await export_library(shop, tmp_path / "one", unheard)
    seen: list[int] = []

    def stop(done: int, _total: int) -> None:
        seen.append(done)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await import_export(other, tmp_path / "one", clock, stop)
    outcome = await import_export(other, tmp_path / "one", clock, unheard)
    assert 0 < outcome.records < 408
    await export_library(other, tmp_path / "two", unheard)
    assert files(tmp_path / "two") == files(tmp_path / "one")


async def test_changes_are_followed_from_one_export_to_the_next(shop: Library, other: Library, tmp_path: Path) -> None:
    """Also where the second change was made before the first was taken in."""
    _, theirs = await shop.open("shop")
    await theirs.commit(batch(Update("m1", {"importance": 0.6}, 1), at=DAY_ONE + 5))
    await export_library(shop, tmp_path / "two", unheard)
    await theirs.commit(batch(Update("m1", {"importance": 0.7}, 2), at=DAY_ONE + 6))
    await theirs.commit(batch(note("Ada", "said more"), at=DAY_ONE + 7))
    await export_library(shop, tmp_path / "three", unheard)
    for name in ("two", "three"):
        await import_export(other, tmp_path / name, clock, unheard)
    await export_library(other, tmp_path / "again", unheard)
    assert files(tmp_path / "again") == files(tmp_path / "three")


async def test_memories_that_are_alike_once_masked_are_one(shop: Library, other: Library, tmp_path: Path) -> None:
    _, store = await shop.open("shop")
    keys = ["ghp_" + letter * 36 for letter in "ab"]
    await store.commit(batch(*(memory(key[:5], f"The key is {key}") for key in keys)))
    outcome = await moved(shop, other, tmp_path / "one")
    assert outcome.masked
    _, ours = await other.open("shop")
    texts = [record.text for record in await ours.scan(RecordFilter(kinds=("memory",)))]
    assert len(texts) == 2
    again = await import_export(other, tmp_path / "one", clock, unheard)
    assert again.records == 0


async def test_a_memory_under_another_id_gets_what_it_lacked(shop: Library, other: Library, tmp_path: Path) -> None:
    await other.create("shop", "")
    _, store = await other.open("shop")
    ours = memory("ours", "We use tabs", importance=0.2, tags=("mine",))
    await store.commit(batch(ours))
    _, theirs = await shop.open("shop")
    await theirs.commit(batch(Update("m1", {"importance": 0.9}, 1)))
    outcome = await moved(shop, other, tmp_path / "one")
    [kept] = await store.get(["ours"])
    assert (kept.tags, kept.importance, outcome.updated) == (("mine", "style"), 0.9, 1)


async def test_a_project_that_is_off_is_left_out(shop: Library, other: Library, tmp_path: Path) -> None:
    project = await other.create("shop", "")
    await other.link_workspace("/home/dev/shop", project)
    await other.set_off("shop", off=True)
    outcome = await moved(shop, other, tmp_path / "one")
    assert outcome.off == ["shop"]
    _, store = await other.open("shop")
    assert sum((await store.count_live()).values()) == 0
    assert not await (await other.open_history_store()).get(["turn_1", "turn_2"])


async def test_an_archived_project_is_told_before_anything_is_taken_in(
    shop: Library, other: Library, tmp_path: Path
) -> None:
    await other.create("shop", "")
    await other.archive("shop")
    with pytest.raises(ProjectArchived):
        await moved(shop, other, tmp_path / "one")
    assert not await (await other.open_user_store()).get(["m2"])


@pytest.mark.parametrize(
    ("place", "values"),
    [
        ("projects/shop", {"scope": "user"}),
        ("projects/shop", {"kind": "turn"}),
        ("projects/shop", {"kind": "section"}),
        ("user", {"scope": "project"}),
        ("history", {"kind": "transcript"}),
        ("history", {"kind": "memory"}),
    ],
)
async def test_what_lies_in_the_wrong_place_is_refused(
    shop: Library, other: Library, tmp_path: Path, place: str, values: dict[str, str]
) -> None:
    await export_library(shop, tmp_path / "one", unheard)
    path = tmp_path / "one" / place / "records.jsonl"
    lines = path.read_text("utf-8").splitlines()
    lines[-1] = json.dumps(json.loads(lines[-1]) | values)
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(InvalidInput, match="does not belong there"):
        await import_export(other, tmp_path / "one", clock, unheard)
    assert await other.list_projects() == []


async def test_no_folder_is_taken_where_that_is_not_wanted(shop: Library, other: Library, tmp_path: Path) -> None:
    outcome = await moved(shop, other, tmp_path / "one", folders=False)
    assert outcome.folders == {}
    assert await other.find_workspace_project("/home/dev/shop") is None
    assert (await import_export(other, tmp_path / "one", clock, unheard)).folders == {"/home/dev/shop": "shop"}


async def test_what_was_forgotten_here_under_another_id_stays_forgotten(
    shop: Library, other: Library, tmp_path: Path
) -> None:
    await other.create("shop", "")
    _, store = await other.open("shop")
    await store.commit(batch(memory("ours", "We use tabs")))
    await store.commit(batch(Delete(record_ref("ours")), at=LATER))
    outcome = await moved(shop, other, tmp_path / "one")
    assert outcome.forgotten == 1
    assert not await store.get(["m1", "ours"])
    _, theirs = await shop.open("shop")
    await theirs.commit(batch(Update("m1", {"importance": 0.9}, 1), at=LATER + 1))
    assert (await moved(shop, other, tmp_path / "one")).records == 1


async def test_a_line_that_somebody_edits_is_taken_in(shop: Library, other: Library, tmp_path: Path) -> None:
    await moved(shop, other, tmp_path / "one")
    path = tmp_path / "one" / "projects" / "shop" / "records.jsonl"
    path.write_text(path.read_text("utf-8").replace("We use tabs", "We use ☃"), encoding="utf-8")
    assert (await import_export(other, tmp_path / "one", clock, unheard)).updated == 1
    assert (await import_export(other, tmp_path / "one", clock, unheard)).updated == 0
    _, store = await other.open("shop")
    assert [(r.text, r.name_key) for r in await store.get(["m1"])] == [("We use ☃", compute_text_key("We use ☃"))]


@pytest.mark.parametrize(
    ("line", "problem"), [(b"<<<<<<< HEAD", "conflict"), (b'{"id": "\xff"}', "not UTF-8"), (b"{", "not JSON")]
)
async def test_a_line_that_cannot_be_read_is_named(
    shop: Library, other: Library, tmp_path: Path, line: bytes, problem: str
) -> None:
    await export_library(shop, tmp_path / "one", unheard)
    path = tmp_path / "one" / "user" / "records.jsonl"
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(InvalidInput, match=f"line 2: .*{problem}"):
        await import_export(other, tmp_path / "one", clock, unheard)


async def test_both_homes_of_an_account_come_back_whatever_is_excluded_here(
    other: Library, shop: Library, tmp_path: Path
) -> None:
    """An account's folders are those of another machine."""
    said = replace(turn(3), parent=None, scope="/hers")
    homes = {format_private_name("user", "anna"): memory("m3", "Her own", scope="user")}
    homes[format_private_name("history", "anna")] = said
    await Accounts(shop, clock).create_token("anna", "")
    for name, own in homes.items():
        await shop.create(name, "")
        _, store = await shop.open(name)
        await store.commit(batch(own))
    await Accounts(other, clock).create_token("anna", "")
    await other.set_note(ANNA, await shop.get_note(ANNA))
    await export_library(shop, tmp_path / "out", unheard)
    outcome = await import_export(other, tmp_path / "out", clock, unheard, excluded=["/hers"])
    assert (outcome.accounts, outcome.projects, outcome.left_out) == (["anna"], ["shop"], 0)
    for name, own in homes.items():
        _, store = await other.open(name)
        assert [record.text for record in await store.scan(RecordFilter())] == [own.text]


async def exported_home(library: Library, folder: Path) -> None:
    """An export with something that is Anna's alone."""
    await Accounts(library, clock).create_token("anna", "")
    await library.create(format_private_name("user", "anna"), "")
    _, store = await library.open(format_private_name("user", "anna"))
    await store.commit(batch(memory("m3", "Her own", scope="user")))
    await export_library(library, folder, unheard)


async def homes_in(library: Library) -> list[str]:
    return [each.name for each in await library.list_projects() if each.name.startswith("@")]


async def test_a_namesake_gets_nothing_unless_they_are_said_to_be_the_same(
    other: Library, shop: Library, tmp_path: Path
) -> None:
    await exported_home(shop, tmp_path / "out")
    await Accounts(other, clock).create_token("anna", "")
    outcome = await import_export(other, tmp_path / "out", clock, unheard)
    assert (outcome.accounts, outcome.strangers, await homes_in(other)) == ([], ["anna"], [])
    outcome = await import_export(other, tmp_path / "out", clock, unheard, same=["anna"])
    assert (outcome.accounts, outcome.strangers) == (["anna"], [])
    assert await homes_in(other) == [format_private_name("user", "anna")]


async def test_who_is_unknown_here_is_nobody_that_is_the_same(other: Library, shop: Library, tmp_path: Path) -> None:
    await exported_home(shop, tmp_path / "out")
    outcome = await import_export(other, tmp_path / "out", clock, unheard, same=["anna"])
    assert (outcome.strangers, await homes_in(other)) == (["anna"], [])


async def test_an_export_that_does_not_say_which_account_it_was_is_nobodys(shop: Library, tmp_path: Path) -> None:
    await exported_home(shop, tmp_path / "out")
    (tmp_path / "out" / "accounts" / "anna" / "account.json").unlink()
    assert (await import_export(shop, tmp_path / "out", clock, unheard)).strangers == ["anna"]
    (tmp_path / "out" / "accounts" / "anna" / "account.json").write_text('{"id": 1}', "utf-8")
    with pytest.raises(InvalidInput, match=r"account\.json"):
        await import_export(shop, tmp_path / "out", clock, unheard)


async def test_what_is_left_of_somebody_who_was_removed_is_in_no_export(shop: Library, tmp_path: Path) -> None:
    await exported_home(shop, tmp_path / "out")
    await shop.set_note(ANNA, None)
    assert (await export_library(shop, tmp_path / "out", unheard)).accounts == []
    assert not (tmp_path / "out" / "accounts").exists()


async def test_secrets_in_the_name_and_description_of_a_project_are_masked(
    shop: Library, other: Library, tmp_path: Path
) -> None:
    token = "gh" + "p_" + "a1B2" * 9
    await shop.create(f"deploy {token}", f"Uses {token}.")
    outcome = await moved(shop, other, tmp_path / "one")
    project = await other.get_project("deploy [masked: github token]")
    assert project.description == "Uses [masked: github token]."
    assert "github token" in outcome.masked
