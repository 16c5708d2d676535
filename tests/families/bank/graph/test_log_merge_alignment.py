"""What others wrote into a log stays as they wrote it, where the records say the same."""

from typing import Any

from everkept.core.times import format_iso
from everkept.families.bank.graph.model import (
    compute_entity_id,
    compute_observation_id,
    get_observation_id,
    get_public_id,
)
from everkept.families.bank.graph.queries import EntityLookup
from graph_mirror import Mirroring, entity_deleted, observed, related, upserted

SECRET = "Login: password: correcthorse99 is the demo account"


def note(at: int, text: str, key: str, owner: str, when: str = "") -> dict[str, Any]:
    observation = {"id": key, "entityId": owner, "text": text, "timestamp": when or format_iso(at)}
    return {"type": "observation_add", "observation": observation, "ts": format_iso(at)}


def foreign(at: int, name: str, key: str, **attrs: Any) -> dict[str, Any]:
    event = upserted(name, at, **attrs)
    return {**event, "entity": {**event["entity"], "id": key}}


async def unchanged(here: Mirroring, *events: Any) -> None:
    """Neither reading nor writing brings a line that contradicts one of these."""
    here.append(*events)
    before = here.path.read_bytes()
    await here.meet()
    await here.follow()
    await here.mirror.rebuild(here.bank)
    assert here.path.read_bytes() == before


async def test_secrets_stay_in_the_log_of_who_wrote_them(here: Mirroring) -> None:
    at = here.clock()
    told = [upserted("Ada", at, password="hunter2-hunter2"), observed("Ada", SECRET, at)]
    await unchanged(here, *told, upserted(f"Key {SECRET}", at))
    await here.observe("Ada", "likes tea")
    await here.follow()
    assert [line["type"] for line in here.lines[-2:]] == ["entity_upsert", "observation_add"]
    [text] = await here.texts() - {"likes tea"}
    assert "correcthorse" not in text


async def test_what_was_masked_here_can_be_deleted_from_the_log(here: Mirroring) -> None:
    at = here.clock()
    await unchanged(here, upserted("Ada", at), observed("Ada", SECRET, at))
    [record] = await here.observations()
    await here.forget(record.text)
    await here.follow()
    assert here.told()[1] == set()
    assert len(here.lines) == 4


async def test_the_same_text_at_two_times_stays_two_observations_of_the_log(here: Mirroring) -> None:
    early, late = here.clock(), here.clock()
    told = [upserted("Ada", early), observed("Ada", "tea", early), observed("Ada", "tea", late)]
    await unchanged(here, *told)
    [record] = await here.observations()
    assert record.effective_at == early
    await here.upsert("Bob")
    await here.follow()
    assert len(here.lines) == 5
    await here.forget("tea")
    await here.follow()
    assert here.told() == await here.stored()
    assert here.told()[1] == set()


async def test_times_may_be_written_in_other_ways(here: Mirroring) -> None:
    at = here.clock()
    owner = compute_entity_id("Ada", "thing")
    events = [upserted("Ada", at)]
    events += [
        note(at, f"at {when}", compute_observation_id(owner, f"at {when}", when), owner, when)
        for when in ("2026-03-02T13:00:00Z", "2026-03-02", "2026-03-02T15:00:00+02:00")
    ]
    await unchanged(here, *events)
    ada = await here.entity("Ada")
    assert ada is not None
    shown = {get_observation_id(record, ada) for record in await here.observations()}
    assert shown == {event["observation"]["id"] for event in events[1:]}
    lookup, store = EntityLookup(here.banking.records), await here.store()
    for event in events[1:]:
        [(found, _)] = await lookup.find_observations(here.bank, store, event["observation"]["id"])
        assert found.text == event["observation"]["text"]


async def test_ids_that_were_made_otherwise_are_kept_found_and_used(here: Mirroring) -> None:
    at = here.clock()
    await unchanged(
        here,
        foreign(at, "Ada", "e1", role="cook"),
        foreign(at, "Bob", "e2"),
        note(at, "likes tea", "o1", "e1"),
        related("Ada", "knows", "Bob", at)
        | {
            "relation": {"id": "r1", "fromId": "e1", "toId": "e2", "relationType": "knows", "createdAt": format_iso(at)}
        },
    )
    found = await EntityLookup(here.banking.records).find_entities(here.bank, await here.store(), ["e1"])
    ada = found["e1"]
    assert ada is not None
    assert get_public_id(ada) == "e1"
    before = len(here.lines)
    await here.observe("Ada", "likes milk")
    await here.follow()
    [line] = here.lines[before:]
    assert line["observation"]["entityId"] == "e1"
    await here.unrelate("knows")
    await here.forget("likes tea")
    await here.follow()
    assert here.told() == await here.stored()
    await here.delete("Ada")
    await here.follow()
    assert here.lines[-1]["entityId"] == "e1"
    assert here.told() == await here.stored()


async def test_a_delete_of_an_id_that_was_made_otherwise_counts(here: Mirroring) -> None:
    at = here.clock()
    await unchanged(here, foreign(at, "Ada", "e1"), note(at, "tea", "o1", "e1"))
    ids = {"entityId": "e1", "observationId": "o1"}
    here.append({"type": "observation_delete", **ids, "ts": format_iso(here.clock())})
    await here.meet()
    assert await here.texts() == set()
    here.append({**entity_deleted("Ada", here.clock()), "entityId": "e1"})
    await here.meet()
    assert (await here.stored())[0] == {}


async def test_a_known_entity_takes_the_id_that_the_log_has(here: Mirroring) -> None:
    await here.observe("Ada", "likes tea")
    here.append(foreign(here.clock(), "Ada", "e1"))
    await here.meet()
    await here.follow()
    assert [line["observation"]["entityId"] for line in here.lines[2:]] == ["e1"]
    assert here.told() == await here.stored()


async def test_a_renamed_entity_gets_an_id_of_ours(here: Mirroring) -> None:
    at = here.clock()
    await unchanged(here, foreign(at, "Ada", "e1"), note(at, "tea", "o1", "e1"))
    await here.rename("Ada", "Ada Lovelace")
    await here.follow()
    assert here.told() == await here.stored()
    assert here.lines[-1] == {**here.lines[-1], "type": "entity_delete", "entityId": "e1"}


async def test_an_entity_that_stands_under_two_ids_goes_under_both(here: Mirroring) -> None:
    await here.upsert("Ada")
    await here.follow()
    at = here.clock()
    await unchanged(here, foreign(at, "Ada", "e1"), note(at, "tea", "o1", "e1"))
    assert await here.texts() == {"tea"}
    await here.delete("Ada")
    await here.follow()
    assert here.told() == await here.stored() == ({}, set(), set())


async def test_an_id_that_means_something_else_here_is_not_taken_over(here: Mirroring) -> None:
    await here.upsert("Ada")
    await here.follow()
    here.append(foreign(here.clock(), "Bob", compute_entity_id("Ada", "thing")))
    await here.meet()
    await here.follow()
    assert here.told() == await here.stored()
    assert here.told()[0].keys() == {("Ada", "thing"), ("Bob", "thing")}


async def test_a_graph_is_set_to_a_log_with_other_ids(here: Mirroring) -> None:
    at = here.clock()
    await unchanged(here, foreign(at, "Ada", "e1"), note(at, "tea", "o1", "e1"))
    backup = here.path.read_bytes()
    await here.delete("Ada")
    await here.upsert("Bob")
    await here.follow()
    call = here.banking.call("restore_backup")
    await here.mirror.set_state(here.bank, here.mirror.parse_state(backup), call)
    assert here.told() == await here.stored()
    assert here.told()[1] == {(("Ada", "thing"), "tea")}


async def test_what_goes_to_a_renamed_entity_takes_no_id_of_another_along(here: Mirroring) -> None:
    await here.upsert("Ada")
    await here.follow()
    await here.rename("Ada", "Bob")
    here.append(observed("Ada", "likes tea", here.clock()))
    brought = here.path.read_bytes()
    await here.meet()
    await here.follow()
    here.path.write_bytes(brought)
    await here.observe("Ada", "likes milk")
    await here.follow()
    assert here.told() == await here.stored()


async def test_a_renamed_entity_that_comes_back_keeps_an_id_of_its_own(here: Mirroring) -> None:
    await here.upsert("Ada")
    await here.follow()
    await here.rename("Ada", "Bob")
    await here.delete("Bob")
    here.append(observed("Ada", "likes tea", here.clock()))
    await here.meet()
    await here.upsert("Ada")
    await here.follow()
    assert here.told() == await here.stored()
