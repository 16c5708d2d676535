"""Which of two words counts when a log meets the records, and setting a graph to a state."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.core.times import format_iso
from everkept.families.bank.graph.model import compute_entity_id
from everkept.graph.entities import ensure_entities
from examples import examples
from graph_mirror import (
    MARKER,
    Mirroring,
    as_lines,
    entity_deleted,
    mirrored,
    mirrored_in_memory,
    observed,
    related,
    replay,
    upserted,
)


async def set_to(here: Mirroring, log: bytes) -> None:
    state = here.mirror.parse_state(log)
    await here.mirror.set_state(here.bank, state, here.banking.call("restore_backup"))


async def test_a_graph_is_set_to_a_state_in_one_change_that_can_be_undone(here: Mirroring) -> None:
    await here.upsert("Ada", role="cook")
    await here.observe("Ada", "likes tea")
    await here.relate("Ada", "knows", "Bob")
    await here.follow()
    backup = here.path.read_bytes()
    await here.upsert("Ada", role="chef")
    await here.observe("Ada", "likes coffee")
    await here.delete("Bob")
    await here.relate("Ada", "likes", "Cleo")
    await here.follow()
    later = await here.stored()
    revision = await (await here.store()).get_revision()
    await set_to(here, backup)
    assert await here.stored() == here.told() == replay(backup)
    assert await (await here.store()).get_revision() == revision + 1
    await here.undo()
    await here.follow()
    assert await here.stored() == here.told() == later


async def test_what_others_put_into_the_log_is_past_when_a_state_is_set(here: Mirroring) -> None:
    await here.upsert("Ada")
    await here.follow()
    backup = here.path.read_bytes()
    here.append(upserted("Bob", here.clock()))
    await set_to(here, backup)
    assert await here.stored() == here.told() == replay(backup)


async def test_a_state_is_set_where_the_log_is_none(here: Mirroring) -> None:
    here.path.parent.mkdir()
    here.path.write_text("notes\n", encoding="utf-8")
    await set_to(here, as_lines(MARKER, upserted("Ada", here.clock())))
    assert await here.stored() == here.told()
    [copy] = here.path.parent.glob("*.bak")
    assert copy.read_text(encoding="utf-8") == "notes\n"


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    names = st.sampled_from(("Ada", "Bob", "Cleo"))
    events = [MARKER]
    for at in range(1, draw(st.integers(1, 12))):
        moment = 1_600_000_000_000_000 + at * 1_000_000
        name, other = draw(names), draw(names)
        kind = draw(st.sampled_from(("entity", "entity", "observation", "relation", "delete")))
        if kind == "entity":
            events.append(upserted(name, moment, role=draw(st.sampled_from(("cook", "chef")))))
        elif kind == "delete":
            events.append(entity_deleted(name, moment))
        elif kind == "observation":
            text = draw(st.sampled_from(("tea", "milk")))
            events += [upserted(name, moment), observed(name, text, moment)]
        else:
            events += [upserted(name, moment), upserted(other, moment)]
            events.append(related(name, "knows", other, moment))
    return as_lines(*events)


@settings(deadline=None, max_examples=examples(60))
@given(states=st.lists(logs(), min_size=1, max_size=4))
async def test_any_graph_can_be_set_to_any_other(states: list[bytes]) -> None:
    here = mirrored_in_memory()
    for log in states:
        await set_to(here, log)
        assert await here.stored() == replay(log)
        assert await here.log() is None or replay(await here.log() or b"") == replay(log)


async def test_the_earlier_time_counts_for_the_same_text(here: Mirroring) -> None:
    early = here.clock()
    await here.observe("Ada", "likes tea")
    await here.follow()
    here.append(observed("Ada", "likes tea", early))
    await here.meet()
    [record] = await here.observations()
    assert record.occurred_at == early
    assert here.told() == await here.stored()


async def test_ids_that_were_computed_otherwise_become_ours(here: Mirroring) -> None:
    at = here.clock()
    strange = upserted("Ada", at)
    strange["entity"]["id"] = "ent_strange"
    note = observed("Ada", "likes tea", at)
    note["observation"] |= {"entityId": "ent_strange", "timestamp": format_iso(at)[:19] + "+00:00"}
    here.append(strange, note)
    await here.meet()
    assert here.told() == await here.stored()


async def test_an_entity_that_only_a_relation_named_is_described_by_the_log(here: Mirroring) -> None:
    stub = await here.upsert("Ada", "unknown")
    await here.amend(stub, facets={"stub": True})
    here.append(upserted("Ada", here.clock(), "person"))
    await here.meet()
    [entity] = (await here.stored())[0]
    assert entity == ("Ada", "person")
    found = await here.entity("Ada", "person")
    assert found is not None
    assert found.id == stub


async def test_entities_of_unknown_type_can_be_described_later(here: Mirroring) -> None:
    here.append(upserted("Ada", here.clock(), "unknown"))
    await here.meet()
    steps, _ = await ensure_entities(await here.store(), [("Ada", "person")], here.clock())
    await here.commit(*steps)
    await here.follow()
    assert list(here.told()[0]) == [("Ada", "person")]
    assert compute_entity_id("Ada", "unknown") in str(here.lines[-1])


async def test_a_clock_that_is_behind_loses_no_edit_and_no_delete(here: Mirroring, tmp_path: Path) -> None:
    async with mirrored(tmp_path / "theirs") as there:
        here.banking.clock.pass_days(1)
        await here.upsert("Ada", role="cook")
        await here.observe("Bob", "likes tea")
        await here.relate("Ada", "knows", "Bob")
        await here.follow()
        there.path.parent.mkdir()
        there.path.write_bytes(here.path.read_bytes())
        await there.meet()
        await there.upsert("Ada", role="chef")
        await there.follow()
        await there.unrelate("knows")
        await there.follow()
        await there.delete("Bob")
        await there.follow()
        await there.observe("Ada", "likes milk")
        await there.follow()
        here.path.write_bytes(there.path.read_bytes())
        await here.meet()
        assert await here.stored() == await there.stored() == here.told()
        assert (await here.stored())[0] == {("Ada", "thing"): {"role": "chef"}}


async def test_what_is_empty_here_gives_way_at_the_first_meeting(here: Mirroring) -> None:
    early = here.clock()
    await here.upsert("Ada")
    here.append(upserted("Ada", early, role="cook"))
    await here.meet()
    assert (await here.stored())[0] == {("Ada", "thing"): {"role": "cook"}}
