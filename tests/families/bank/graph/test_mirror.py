"""The mirror follows the records, and takes in what others put into the log."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from everkept.core.ports import Library
from everkept.errors import MarkerMismatch, ReadOnly
from everkept.families.bank.graph.model import compute_entity_id
from graph_mirror import (
    MARKER,
    Crash,
    Mirroring,
    entity_deleted,
    mirrored,
    observation_deleted,
    observed,
    related,
    relation_removed,
    upserted,
)


@pytest.fixture
async def here(library: Library, tmp_path: Path) -> AsyncGenerator[Mirroring, None]:
    async with mirrored(tmp_path, library) as machine:
        yield machine


async def agree(here: Mirroring) -> None:
    assert here.told() == await here.stored()


async def test_the_log_tells_what_was_stored(here: Mirroring) -> None:
    await here.upsert("Shop API", "service", port=8443)
    await here.observe("Shop API", "Runs on port 8443", "service")
    await here.relate("Ada", "uses", "Orders")
    assert await here.follow() == []
    assert here.lines[0] == MARKER
    await agree(here)


async def test_nothing_new_touches_no_file(here: Mirroring) -> None:
    assert await here.follow() == []
    assert not here.path.parent.exists()
    await here.upsert("Ada")
    await here.follow()
    here.files.done.clear()
    await here.follow()
    await here.meet()
    assert {name for name, _ in here.files.done} == {"info"}


async def test_meeting_a_log_that_nobody_touched_is_one_look_at_it(here: Mirroring) -> None:
    await here.upsert("Ada")
    await here.follow()
    here.files.done.clear()
    await here.meet()
    assert here.files.done == [("info", 0)]


async def test_one_change_is_one_line(here: Mirroring) -> None:
    await here.upsert("Ada")
    await here.observe("Ada", "likes tea")
    await here.follow()
    before = len(here.lines)
    await here.observe("Ada", "likes coffee")
    await here.follow()
    [line] = here.lines[before:]
    assert line["type"] == "observation_add"
    assert line["observation"]["text"] == "likes coffee"


async def test_what_is_made_and_deleted_between_two_calls_leaves_no_line(here: Mirroring) -> None:
    await here.upsert("Ada")
    await here.follow()
    before = here.path.read_bytes()
    await here.upsert("Bob")
    await here.delete("Bob")
    await here.follow()
    assert here.path.read_bytes() == before


async def test_a_rename_is_told_as_another_entity_with_all_that_hangs_on_it(here: Mirroring) -> None:
    await here.observe("Ada", "likes tea")
    await here.relate("Ada", "knows", "Bob")
    await here.follow()
    before = len(here.lines)
    await here.rename("Ada", "Ada Lovelace")
    await here.follow()
    assert [line["type"] for line in here.lines[before:]] == [
        "entity_upsert",
        "observation_add",
        "relation_add",
        "entity_delete",
    ]
    await agree(here)


async def test_deletes_and_their_undoing_are_told(here: Mirroring) -> None:
    await here.observe("Ada", "likes tea")
    await here.relate("Ada", "knows", "Bob")
    await here.follow()
    await here.delete("Ada")
    await here.follow()
    await agree(here)
    assert here.told()[0].keys() == {("Bob", "thing")}
    await here.undo()
    await here.follow()
    await agree(here)
    await here.forget("likes tea")
    await here.unrelate("knows")
    await here.follow()
    await agree(here)


async def test_what_is_purged_leaves_the_log_and_its_copies(here: Mirroring) -> None:
    await here.observe("Ada", "likes tea")
    await here.observe("Ada", "lives at 12 Secret Street")
    await here.follow()
    await here.mirror.compact(here.bank)
    await here.purge("lives at 12 Secret Street")
    assert await here.follow() == ["graph_file_rewritten"]
    await agree(here)
    for path in here.path.parent.iterdir():
        if path.suffix in (".jsonl", ".bak"):
            assert "Secret Street" not in path.read_text(encoding="utf-8")


async def test_a_purge_of_something_else_leaves_the_log_alone(here: Mirroring) -> None:
    await here.observe("Ada", "likes tea")
    await here.follow()
    before = here.path.read_bytes()
    await (await here.store()).purge([])
    await here.upsert("Ada")
    await here.follow()
    assert here.path.read_bytes() == before


async def test_what_others_append_comes_in(here: Mirroring) -> None:
    await here.upsert("Ada")
    await here.follow()
    at = here.clock()
    here.append(upserted("Bob", at, role="cook"), observed("Ada", "likes tea", at), related("Ada", "knows", "Bob", at))
    before = here.path.read_bytes()
    assert await here.meet() == []
    await agree(here)
    assert here.path.read_bytes() == before
    [record] = await here.observations()
    assert (record.occurred_at, record.facets) == (at, {"source": {"kind": "agent"}})


async def test_the_newer_attributes_stay(here: Mirroring) -> None:
    await here.upsert("Ada", role="cook")
    await here.follow()
    early = here.clock()
    await here.upsert("Ada", role="chef")
    here.append(upserted("Ada", early, role="waiter"))
    await here.meet()
    await here.follow()
    assert (await here.stored())[0] == {("Ada", "thing"): {"role": "chef"}}
    await agree(here)
    await here.observe("Ada", "likes tea")
    here.append(upserted("Ada", here.clock(), role="owner"))
    await here.observe("Ada", "likes coffee")
    await here.meet()
    await here.follow()
    assert (await here.stored())[0] == {("Ada", "thing"): {"role": "owner"}}
    await agree(here)


async def test_a_delete_that_others_told_is_one_change_which_undo_takes_back(here: Mirroring) -> None:
    await here.observe("Ada", "likes tea")
    await here.relate("Ada", "knows", "Bob")
    await here.follow()
    here.append(entity_deleted("Ada", here.clock()))
    await here.meet()
    assert (await here.stored())[0].keys() == {("Bob", "thing")}
    await here.undo()
    await here.follow()
    await agree(here)
    assert await here.texts() == {"likes tea"}


async def test_observations_and_relations_that_others_dropped_go(here: Mirroring) -> None:
    await here.observe("Ada", "likes tea")
    await here.relate("Ada", "knows", "Bob")
    await here.follow()
    [record] = await here.observations()
    owner = await here.entity("Ada")
    assert owner is not None
    here.append(observation_deleted(record, owner, here.clock()), relation_removed("Ada", "KNOWS", "Bob", here.clock()))
    await here.meet()
    _, observations, relations = await here.stored()
    assert (observations, relations) == (set(), set())


async def test_a_delete_older_than_the_last_touch_deletes_nothing(here: Mirroring) -> None:
    await here.observe("Ada", "likes tea")
    await here.follow()
    early = here.clock()
    await here.observe("Ada", "likes coffee")
    here.append(entity_deleted("Ada", early))
    await here.meet()
    await here.follow()
    assert await here.texts() == {"likes tea", "likes coffee"}
    await agree(here)


async def test_what_was_deleted_here_comes_back_only_when_it_is_newer(here: Mirroring) -> None:
    await here.observe("Ada", "likes tea")
    await here.follow()
    early = here.clock()
    await here.delete("Ada")
    here.append(observed("Ada", "likes milk", early))
    await here.meet()
    await here.follow()
    await agree(here)
    assert await here.entity("Ada") is None
    here.append(upserted("Ada", here.clock()), observed("Ada", "likes water", here.clock()))
    await here.meet()
    await here.follow()
    assert await here.texts() == {"likes water"}
    await agree(here)


async def test_what_others_add_to_a_deleted_entity_brings_it_back(here: Mirroring) -> None:
    await here.observe("Ada", "likes tea")
    await here.follow()
    await here.delete("Ada")
    here.append(observed("Ada", "likes milk", here.clock()))
    await here.meet()
    await here.follow()
    assert await here.texts() == {"likes milk"}
    await agree(here)


async def test_what_others_add_to_a_renamed_entity_goes_to_it(here: Mirroring) -> None:
    await here.observe("Ada", "likes tea")
    await here.follow()
    await here.rename("Ada", "Ada Lovelace")
    here.append(observed("Ada", "likes milk", here.clock()))
    await here.meet()
    await here.follow()
    assert (await here.stored())[0].keys() == {("Ada Lovelace", "thing")}
    assert await here.texts() == {"likes tea", "likes milk"}
    await agree(here)


async def test_bad_lines_are_skipped_and_counted(here: Mirroring) -> None:
    here.append(upserted("Ada", here.clock()), {"type": "entity_sold"})
    with here.path.open("ab") as file:
        file.write(b"<<<<<<< HEAD\n" + json.dumps(upserted("Bob", here.clock())).encode())
        file.write(b"\n=======\n[1]\n>>>>>>> theirs\n" + b'{"type": "entity_upsert", "ent')
    [warning] = await here.mirror.merge_log(here.bank)
    assert warning.code == "graph_lines_skipped"
    assert warning.message.startswith("Skipped 6 invalid lines")
    assert (await here.stored())[0].keys() == {("Ada", "thing"), ("Bob", "thing")}
    await here.upsert("Cleo")
    assert await here.follow() == []
    await agree(here)


async def test_a_log_with_another_first_line_is_left_alone(here: Mirroring) -> None:
    here.path.parent.mkdir()
    here.path.write_text('{"type": "something_else"}\n', encoding="utf-8")
    await here.upsert("Ada")
    before = here.path.read_bytes()
    assert await here.meet() == ["MARKER_MISMATCH"]
    assert await here.follow() == ["MARKER_MISMATCH"]
    here.files.done.clear()
    assert await here.meet() == ["MARKER_MISMATCH"]
    assert here.files.calls("read") == []
    with pytest.raises(MarkerMismatch):
        await here.mirror.rebuild(here.bank)
    assert here.path.read_bytes() == before


async def test_a_part_of_the_first_line_is_completed(here: Mirroring) -> None:
    here.path.parent.mkdir()
    here.path.write_bytes(b'{"type":"memory_bank')
    await here.upsert("Ada")
    assert await here.follow() == []
    await agree(here)


async def test_a_log_that_is_gone_or_cut_gets_what_it_lacks(here: Mirroring) -> None:
    await here.observe("Ada", "likes tea")
    await here.follow()
    here.path.unlink()
    await here.upsert("Bob")
    await here.follow()
    await agree(here)
    lines = here.path.read_bytes().splitlines(keepends=True)
    here.path.write_bytes(b"".join(lines[:2]))
    await here.meet()
    await here.follow()
    await agree(here)
    assert await here.texts() == {"likes tea"}


async def test_secrets_in_the_log_are_masked_on_the_way_in(here: Mirroring) -> None:
    at = here.clock()
    secret = "the token is ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    here.append(upserted("Ada", at, password="hunter2-hunter2"), observed("Ada", secret, at))
    before = here.path.read_bytes()
    assert await here.meet() == ["secret_masked"]
    await here.follow()
    assert here.path.read_bytes() == before
    [text] = await here.texts()
    assert "ghp_" not in text
    assert "hunter2" not in str(await here.stored())


async def test_a_mirror_that_may_not_write_only_says_what_it_did_not_take_in(here: Mirroring) -> None:
    here.append(upserted("Ada", here.clock()))
    here.restart(read_only=True)
    for _ in range(2):
        assert await here.meet() == ["graph_file_not_taken_in"]
    assert await here.follow() == []
    await here.mirror.refresh_view(here.bank)
    assert await here.banking.records.find_project_id(here.bank) is None
    assert [path.name for path in here.path.parent.iterdir()] == ["graph.jsonl"]
    with pytest.raises(ReadOnly):
        await here.mirror.rebuild(here.bank)


async def test_a_log_that_was_taken_in_elsewhere_or_only_touched_is_no_warning(here: Mirroring) -> None:
    here.append(upserted("Ada", here.clock()))
    writer = here.mirror
    here.restart(read_only=True)
    assert await here.meet() == ["graph_file_not_taken_in"]
    await writer.merge_log(here.bank)
    assert await here.meet() == []
    os.utime(here.path, ns=(0, 0))
    assert await here.meet() == []


async def test_a_log_that_cannot_be_written_is_a_warning(here: Mirroring) -> None:
    await here.upsert("Ada")
    (here.banking.folder / "graph").write_text("a file in its place", encoding="utf-8")
    assert await here.follow() == ["graph_file_behind"]
    (here.banking.folder / "graph").unlink()
    assert await here.follow() == []
    await agree(here)


async def test_a_crash_at_any_step_of_following_loses_and_doubles_nothing(here: Mirroring) -> None:
    await here.observe("Ada", "likes tea")
    await here.follow()
    for step in range(1, 8):
        await here.observe("Ada", f"thought {step}")
        here.files.done.clear()
        here.files.crash_at = step
        try:
            await here.follow()
        except Crash:
            here.restart()
        here.files.crash_at = None
        await here.follow()
        await agree(here)
    texts = [x["observation"]["text"] for x in whole_lines(here) if "observation" in x]
    assert sorted(texts) == sorted(await here.texts())


def whole_lines(here: Mirroring) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for line in here.path.read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue  # what a crash left of a line
    return found


async def test_two_who_follow_at_once_write_each_line_once(here: Mirroring, tmp_path: Path) -> None:
    await here.store()
    async with mirrored(tmp_path, here.banking.library) as other:
        other.banking.clock = here.banking.clock

        async def work(machine: Mirroring, name: str) -> None:
            for number in range(10):
                await machine.upsert(f"{name} {number}")
                await machine.follow()

        await asyncio.gather(work(here, "a"), work(other, "b"), work(here, "c"))
    names = [line["entity"]["name"] for line in here.lines[1:]]
    assert len(names) == len(set(names)) == 30
    await agree(here)


async def test_two_machines_on_one_folder_come_to_agree(here: Mirroring, tmp_path: Path) -> None:
    async with mirrored(tmp_path) as other:
        other.banking.clock = here.banking.clock
        other.clock = here.clock
        await here.observe("Ada", "likes tea")
        await other.observe("Ada", "likes tea")
        await other.upsert("Ada", role="cook")
        await here.relate("Ada", "knows", "Bob")
        for _ in range(3):
            for machine in (here, other):
                await machine.meet()
                await machine.follow()
        assert await here.stored() == await other.stored()
        settled = here.path.read_bytes()
        await here.meet()
        await other.meet()
        assert here.path.read_bytes() == settled
        await agree(here)


async def test_entities_that_differ_in_spelling_alone_are_one_in_the_log(here: Mirroring) -> None:
    await here.observe("Ada", "likes tea")
    await here.amend(await here.upsert("ADA", "person"), type="thing", variant="=ADA")
    await here.follow()
    upserts = [line for line in here.lines if line["type"] == "entity_upsert"]
    assert [line["entity"]["id"] for line in upserts] == [compute_entity_id("Ada", "thing")]
    await here.delete("Ada")
    await here.follow()
    assert here.told() == ({("ADA", "thing"): {}}, set(), set())
