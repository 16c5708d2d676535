"""What events leave, and the events that lead from one graph to another."""

from hypothesis import given
from hypothesis import strategies as st

from everkept.families.bank.graph.graph_events import MARKER_LINE, encode_events, parse_log
from everkept.families.bank.graph.model import Event, collect_latest, compute_difference, replay_events
from graph_mirror import MARKER, as_lines, entity_deleted, observed, related, relation_removed, replay, upserted

T = 1_700_000_000_000_000
SECOND = 1_000_000


def events(*lines: dict[str, object]) -> list[Event]:
    return parse_log(as_lines(MARKER, *lines)).events


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    names = st.sampled_from(("Ada", "Bob", "Cleo"))
    lines: list[dict[str, object]] = []
    for number in range(draw(st.integers(0, 15))):
        at = T + number * SECOND
        name, other = draw(names), draw(names)
        kind = draw(st.integers(0, 5))
        if kind == 0:
            lines.append(entity_deleted(name, at))
        elif kind == 1:
            lines.append(relation_removed(name, "knows", other, at))
        elif kind == 2:
            lines += [upserted(name, at), upserted(other, at), related(name, "knows", other, at)]
        elif kind == 3:
            lines += [upserted(name, at), observed(name, f"thought {number % 3}", at)]
        else:
            lines.append(upserted(name, at, number=number))
    return events(*lines)


@given(histories())
def test_a_log_leaves_what_the_public_server_makes_of_it(history: list[Event]) -> None:
    state = replay_events(history)
    entities, observations, relations = replay(MARKER_LINE + encode_events(history))
    assert {(e.name, e.type): e.attrs for e in state.entities.values()} == entities
    assert len({(o.entity_id, o.text) for o in state.observations.values()}) == len(observations)
    assert len(state.relations) == len(relations)


@given(histories(), histories())
def test_the_difference_of_two_graphs_leads_from_one_to_the_other(one: list[Event], other: list[Event]) -> None:
    then, now = replay_events(one), replay_events(other)
    steps = compute_difference(then, now)
    assert replay(MARKER_LINE + encode_events([*one, *steps])) == replay(MARKER_LINE + encode_events(other))
    assert compute_difference(now, now) == []


@given(histories())
def test_a_log_in_the_order_of_its_times_is_heard_as_it_is_replayed(history: list[Event]) -> None:
    state, word = replay_events(history), collect_latest(history)
    assert word.entities.keys() == state.entities.keys()
    assert word.observations.keys() == state.observations.keys()
    assert word.relations.keys() == state.relations.keys()


@given(histories(), st.randoms())
def test_the_order_of_lines_does_not_change_what_is_heard(history: list[Event], chance: object) -> None:
    moments = [event.at for event in history]
    if len(set(moments)) < len(moments):
        return  # at one moment the order is all that there is
    shuffled = list(history)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert collect_latest(shuffled).entities == collect_latest(history).entities
    assert collect_latest(shuffled).observations == collect_latest(history).observations


def test_what_came_after_a_delete_keeps_its_entity_alive() -> None:
    word = collect_latest(
        events(
            upserted("Ada", T),
            observed("Ada", "likes tea", T),
            entity_deleted("Ada", T + SECOND),
            observed("Ada", "likes milk", T + 2 * SECOND),
        )
    )
    assert len(word.entities) == 1
    assert [put.thing.id for put in word.observations.values()] == list(word.observations)
    assert len(word.observations) == 1
