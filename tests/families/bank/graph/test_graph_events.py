"""The lines of a graph's log."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.families.bank.graph.graph_events import MARKER_LINE, MarkerMismatch, encode_events, parse_log
from everkept.families.bank.graph.model import GraphState, compute_difference, replay_events
from graph_mirror import MARKER, as_lines, entity_deleted, observed, related, replay, upserted
from records import DAY_ONE

SAMPLE = """\
{"type": "memory_bank_graph", "source": "memory-bank-mcp", "version": "1"}
{"type": "entity_upsert", "entity": {"id": "ent_dCaO4uichTpa", "name": "Shop API", \
"entityType": "service", "createdAt": "2026-03-02T13:00:00.000Z", \
"updatedAt": "2026-03-02T13:00:00.000Z"}, "ts": "2026-03-02T13:00:00.000Z"}
{"type": "entity_upsert", "entity": {"id": "ent_C38QptuQfgbA", "name": "Orders DB", \
"entityType": "database", "createdAt": "2026-03-02T13:00:00.000Z", \
"updatedAt": "2026-03-02T13:00:00.000Z"}, "ts": "2026-03-02T13:00:00.000Z"}
{"type": "observation_add", "observation": {"id": "obs_5dNQbd6hsN2S", \
"entityId": "ent_dCaO4uichTpa", "text": "Runs on port 8443", "source": {"kind": "manual"}, \
"timestamp": "2026-03-02T13:00:00.000Z"}, "ts": "2026-03-02T13:00:00.000Z"}
{"type": "relation_add", "relation": {"id": "rel_jgTDOK1PPmiB", "fromId": "ent_dCaO4uichTpa", \
"toId": "ent_C38QptuQfgbA", "relationType": "reads_from", \
"createdAt": "2026-03-02T13:00:00.000Z"}, "ts": "2026-03-02T13:00:00.000Z"}
{"type": "observation_delete", "entityId": "ent_dCaO4uichTpa", \
"observationId": "obs_5dNQbd6hsN2S", "ts": "2026-03-02T13:05:00.000Z"}
{"type": "snapshot_written", "snapshotPath": "graph/graph.snapshot.json", "stats": \
{"entityCount": 2, "observationCount": 0, "relationCount": 1, "entityTypes": ["database", \
"service"], "relationTypes": ["reads_from"]}, "ts": "2026-03-02T13:06:00.000Z"}
"""


def test_every_event_of_the_public_format_is_written_as_it_was_read() -> None:
    log = parse_log(SAMPLE.encode())
    assert (log.lines, log.skipped, log.beginning) == (7, 0, b"")
    lines = [json.loads(line) for line in SAMPLE.splitlines()]
    assert [json.loads(line) for line in encode_events(log.events).splitlines()] == lines[1:-1]
    assert replay_events(log.events).compute_stats() == lines[-1]["stats"]


def test_a_log_may_have_other_line_ends_and_a_mark_of_its_encoding() -> None:
    data = b"\xef\xbb\xbf" + SAMPLE.replace("\n", "\r\n").encode()
    assert parse_log(data).events == parse_log(SAMPLE.encode()).events


@pytest.mark.parametrize("first", ["", "[]", '{"type": "memory_bank_graph"}', "<<<<<<< HEAD", "\x00\xff"])
def test_another_first_line_is_an_error(first: str) -> None:
    data = (first + "\n").encode("latin-1") + as_lines(upserted("Ada", DAY_ONE))
    with pytest.raises(MarkerMismatch) as raised:
        parse_log(data)
    assert raised.value.code == "MARKER_MISMATCH"


@pytest.mark.parametrize("size", range(len(MARKER_LINE)))
def test_a_part_of_the_first_line_lacks_the_rest(size: int) -> None:
    log = parse_log(MARKER_LINE[:size])
    assert MARKER_LINE[:size] + log.beginning == MARKER_LINE


def changed(event: dict[str, Any], part: str, **values: Any) -> dict[str, Any]:
    return {**event, part: {**event[part], **values}}


ENTITY = upserted("Ada", DAY_ONE)
OBSERVATION = observed("Ada", "likes tea", DAY_ONE)
RELATION = related("Ada", "knows", "Ada", DAY_ONE)


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"type": "entity_sold"},
        {"type": "entity_upsert"},
        {"type": "entity_upsert", "entity": []},
        {"type": "entity_delete"},
        {"type": "observation_delete", "entityId": "x"},
        {"type": "relation_remove", "fromId": "x", "toId": "y"},
        changed(ENTITY, "entity", name="  "),
        changed(ENTITY, "entity", name="a\nb"),
        changed(ENTITY, "entity", name="x" * 501),
        changed(ENTITY, "entity", entityType=3),
        changed(ENTITY, "entity", attrs=[1]),
        changed(ENTITY, "entity", attrs={"x": "\ud800"}),
        changed(ENTITY, "entity", attrs={"x": float("nan")}),
        changed(OBSERVATION, "observation", text=""),
        changed(OBSERVATION, "observation", text="x" * 100_001),
        changed(OBSERVATION, "observation", text="\ud800"),
        changed(OBSERVATION, "observation", entityId=None),
        changed(RELATION, "relation", relationType=""),
        changed(RELATION, "relation", toId=""),
        {**changed(OBSERVATION, "observation", timestamp="noon"), "ts": "noon"},
    ],
)
def test_what_could_not_be_kept_is_skipped(event: dict[str, Any]) -> None:
    log = parse_log(as_lines(MARKER, event, upserted("Bob", DAY_ONE)))
    assert (log.skipped, len(log.events)) == (1, 1)


def test_a_source_of_an_unknown_kind_is_kept_as_its_word() -> None:
    event = changed(OBSERVATION, "observation", source={"kind": "oracle"})
    [entity, put] = parse_log(as_lines(MARKER, ENTITY, event)).events
    [observation] = replay_events([entity, put]).observations.values()
    assert observation.source == {"kind": "manual", "ref": "oracle"}


@given(st.binary(max_size=300))
def test_no_bytes_behind_the_first_line_are_an_error(data: bytes) -> None:
    log = parse_log(MARKER_LINE + data + b"\n" + as_lines(ENTITY))
    assert len(log.events) >= 1


names = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1).filter(
    lambda name: name.strip() != ""
)
texts = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1).filter(lambda text: text.strip() != "")


@given(st.dictionaries(names.map(str.lower), st.lists(texts, max_size=3), max_size=4))
def test_what_is_written_is_read_as_the_same_graph(graph: dict[str, list[str]]) -> None:
    events = [upserted(name, DAY_ONE) for name in graph]
    events += [observed(name, text, DAY_ONE) for name, some in graph.items() for text in some]
    events += [entity_deleted(name, DAY_ONE) for name in list(graph)[:1]]
    state = replay_events(parse_log(as_lines(MARKER, *events)).events)
    data = MARKER_LINE + encode_events(compute_difference(GraphState(), state, lambda _: DAY_ONE))
    again = replay_events(parse_log(data).events)
    assert (again.entities, again.observations) == (state.entities, state.observations)
    assert len(replay(data)[1]) == len({(o.entity_id, o.text) for o in state.observations.values()})
