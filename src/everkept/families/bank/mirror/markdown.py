"""The graph for people to read: the whole of it in a file, or a few lines of it."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from everkept.core.text import clipped
from everkept.core.times import iso
from everkept.families.bank.mirror.events import VERSION
from everkept.families.bank.mirror.state import EntityState, GraphState, ObservationState

VIEW = "graph/graph.md"
RECENT = 10  # entities under Recent Activity
SHOWN_OBSERVATIONS = 3  # of each entity
TEXT_SHOWN = 300  # characters of an observation
MOST_LISTED = 1_000  # entities or relations of one type
TIME_LINE = "- **Generated:** "

# What markdown would take for its own: anywhere, as an underscore at the edge of a word, as an
# entity of HTML, and at the beginning of a line.
_SPECIAL = re.compile(
    r"[\\`|*<]|\](?=[(\[:])|(?<![^\W_])_|_(?![^\W_])|~(?=~)|&(?=#?\w+;)"
    r"|^[>\[]|^#(?=#*(?:\s|$))|^[+-](?=[\s-]|$)|^[0-9]+(?=[.)](?:\s|$))"
)


def view(state: GraphState, store: str, at: int) -> str:
    """Everything but the line of its time says the same for the same graph."""
    observations = _by_entity(state)
    parts = [
        "# Knowledge Graph\n",
        f"- **Store:** {_line(store)}\n{TIME_LINE}{iso(at)}\n- **Version:** {VERSION}\n",
        _statistics(state),
        _recent(state),
        _entities(state, observations),
        _relations(state),
    ]
    return "\n".join(part for part in parts if part)


def without_time(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith(TIME_LINE)]


def summary(state: GraphState, most: int = 5) -> str | None:
    """A few lines for whoever begins to work; None without a graph."""
    if state.is_empty:
        return None
    counts = (
        f"{len(state.entities)} entities, {len(state.observations)} observations, "
        f"{len(state.relations)} relations."
    )
    ends = Counter(
        end for relation in state.relations.values() for end in {relation.from_id, relation.to_id}
    )
    connected = [f"{_plain(state.entities[key])} {count}" for key, count in ends.most_common(most)]
    recent = [_plain(entity) for entity in _newest(state.entities.values())[:most]]
    lines = [counts, f"- Most recent: {', '.join(recent)}"]
    if connected:
        lines.append(f"- Most connected: {', '.join(connected)}")
    return "\n".join(lines)


def _by_entity(state: GraphState) -> dict[str, list[ObservationState]]:
    found: dict[str, list[ObservationState]] = {}
    for observation in sorted(state.observations.values(), key=lambda o: (-o.at, o.id)):
        found.setdefault(observation.entity_id, []).append(observation)
    return found


def _statistics(state: GraphState) -> str:
    rows = [
        ("Entities", len(state.entities)),
        ("Observations", len(state.observations)),
        ("Relations", len(state.relations)),
        ("Entity types", len({entity.type for entity in state.entities.values()})),
        ("Relation types", len({relation.type for relation in state.relations.values()})),
    ]
    table = "".join(f"| {name} | {count} |\n" for name, count in rows)
    return f"## Statistics\n\n| Metric | Count |\n| --- | --- |\n{table}"


def _recent(state: GraphState) -> str:
    if state.is_empty:
        return ""
    lines = [
        f"- {iso(entity.updated_at)} {_named(entity)}\n"
        for entity in _newest(state.entities.values())[:RECENT]
    ]
    return "## Recent Activity\n\n" + "".join(lines)


def _entities(state: GraphState, observations: dict[str, list[ObservationState]]) -> str:
    if state.is_empty:
        return ""
    groups: dict[str, list[EntityState]] = {}
    for entity in sorted(state.entities.values(), key=lambda e: (e.type.lower(), e.name.lower())):
        groups.setdefault(entity.type, []).append(entity)
    lines = ["## Entities\n"]
    for kind, entities in groups.items():
        lines.append(f"\n### {_line(kind)}\n\n")
        for entity in entities[:MOST_LISTED]:
            lines += _described(entity, observations.get(entity.id, []))
        lines.append(_more(len(entities) - MOST_LISTED))
    return "".join(lines)


def _described(entity: EntityState, observations: list[ObservationState]) -> list[str]:
    lines = [f"- **{_line(entity.name)}**\n"]
    lines += [f"  - {_line(key)}: {_value(value)}\n" for key, value in entity.attrs.items()]
    lines += [f"  - {_line(o.text)}\n" for o in observations[:SHOWN_OBSERVATIONS]]
    if more := _more(len(observations) - SHOWN_OBSERVATIONS):
        lines.append(f"  {more}")
    return lines


def _relations(state: GraphState) -> str:
    if not state.relations:
        return ""
    groups: dict[str, list[str]] = {}
    for relation in state.relations.values():
        source, target = (state.entities[end] for end in (relation.from_id, relation.to_id))
        line = f"- {_line(source.name)} --{_line(relation.type)}--> {_line(target.name)}\n"
        groups.setdefault(relation.type, []).append(line)
    lines = ["## Relations\n"]
    for kind in sorted(groups, key=str.lower):
        lines.append(f"\n### {_line(kind)}\n\n")
        lines += sorted(groups[kind])[:MOST_LISTED]
        lines.append(_more(len(groups[kind]) - MOST_LISTED))
    return "".join(lines)


def _newest(entities: Iterable[EntityState]) -> list[EntityState]:
    return sorted(entities, key=lambda entity: (-entity.updated_at, entity.name))


def _named(entity: EntityState) -> str:
    return f"{_line(entity.name)} ({_line(entity.type)})"


def _plain(entity: EntityState) -> str:
    """Without markdown, for a text in an answer."""
    return f"{clipped(entity.name, TEXT_SHOWN)} ({clipped(entity.type, TEXT_SHOWN)})"


def _value(value: Any) -> str:
    return _line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _line(text: str) -> str:
    """On one line, and with nothing in it that markdown would take for its own."""
    return _SPECIAL.sub(_escaped, clipped(text, TEXT_SHOWN))


def _escaped(found: re.Match[str]) -> str:
    # Of a number that would begin a list, the sign behind it is what counts.
    mark = found.group()
    return f"{mark}\\" if mark.isdigit() else f"\\{mark}"


def _more(count: int) -> str:
    return f"- and {count} more\n" if count > 0 else ""
