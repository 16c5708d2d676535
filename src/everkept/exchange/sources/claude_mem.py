"""claude-mem: its SQLite database, and the JSON file that its export script writes."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from everkept.core.disk import open_regular
from everkept.exchange.foreign import (
    ForeignItem,
    ForeignMemory,
    ForeignSource,
    Machine,
    Row,
    Skipped,
    build_wrong_place_error,
    choose_type,
    is_sqlite_file,
    open_foreign_database,
)
from everkept.exchange.json_files import JsonItem, expect_json, read_json_items
from everkept.families.memories.model import MemoryType
from everkept.transcripts.source_programs import as_list, as_mapping, as_text, as_texts, parse_time, parse_value
from everkept.values import replace

DATABASE = "claude-mem.db"
EXPECTED = "data of claude-mem"
HINT = f"Pass its folder, its {DATABASE}, or a JSON export."
SUMMARY_PARTS = ("request", "investigated", "learned", "completed", "next_steps", "notes")
DECISION_IMPORTANCE, USUAL_IMPORTANCE = 0.6, 0.4
PROMPTS_SKIPPED = "prompt, which `everkept import history` reads with its conversation"

_Sessions = Mapping[str, str]  # Claude Code's ids by those of claude-mem


def read(place: Path, skipped: Skipped) -> Iterator[ForeignItem]:
    """Yield what the program observed, and its summaries of sessions."""
    path = place / DATABASE if place.is_dir() else place
    if not path.is_file():
        raise build_wrong_place_error(place, EXPECTED, HINT)
    return _read_database(path, skipped) if is_sqlite_file(path) else _read_export(path, skipped)


def _read_database(path: Path, skipped: Skipped) -> Iterator[ForeignItem]:
    with open_foreign_database(path, "observations", EXPECTED, HINT) as database:
        if not database.has_table("sdk_sessions"):
            raise build_wrong_place_error(path, EXPECTED, HINT)
        sessions = _map_sessions(database.read("sdk_sessions"))
        for row in database.read("observations"):
            yield _build_observation(row, sessions)
        for row in database.read("session_summaries"):
            yield _build_summary(row, sessions)
        if database.has_table("user_prompts"):
            skipped[PROMPTS_SKIPPED] += database.count("user_prompts")


def _read_export(path: Path, skipped: Skipped) -> Iterator[ForeignItem]:
    sessions: list[Row] = []  # an export has them after the observations
    is_export = False
    for key, value in _read_items(path):
        is_export = is_export or key in ("exportedAt", "totalObservations")
        if key == "sessions":
            sessions.append(as_mapping(value))
    if not is_export:
        raise build_wrong_place_error(path, EXPECTED, HINT)
    ids = _map_sessions(sessions)
    for key, value in _read_items(path):
        if key == "observations":
            yield _build_observation(as_mapping(value), ids)
        elif key == "summaries":
            yield _build_summary(as_mapping(value), ids)
        elif key == "prompts":
            skipped[PROMPTS_SKIPPED] += 1


def _read_items(path: Path) -> Iterator[JsonItem]:
    with expect_json(path, EXPECTED, HINT), open_regular(path) as file:
        yield from read_json_items(file)


def _map_sessions(rows: Iterable[Row]) -> _Sessions:
    return {as_text(row.get("memory_session_id")): as_text(row.get("content_session_id")) for row in rows}


def _build_observation(row: Row, sessions: _Sessions) -> ForeignMemory:
    kind = as_text(row.get("type"))
    concepts = _read_list(row.get("concepts"))
    told = as_text(row.get("narrative")) or as_text(row.get("text"))
    facts = "\n".join(f"- {fact}" for fact in _read_list(row.get("facts")))
    return replace(
        _build_memory("observation", row, sessions),
        text=_join([as_text(row.get("title")), as_text(row.get("subtitle")), told, facts]),
        kind=kind,
        type=_choose_type(kind, concepts),
        author=as_text(row.get("agent_id")) or as_text(row.get("agent_type")) or None,
        importance=DECISION_IMPORTANCE if kind == "decision" else USUAL_IMPORTANCE,
        tags=(kind, *concepts),
        related=_name_files(row, ("files_read", "files_modified")),
    )


def _build_summary(row: Row, sessions: _Sessions) -> ForeignMemory:
    told = [(name, as_text(row.get(name)).strip()) for name in SUMMARY_PARTS]
    return replace(
        _build_memory("summary", row, sessions),
        text=_join([f"{name.replace('_', ' ').capitalize()}: {text}" for name, text in told if text]),
        kind="summary",
        type="episodic",
        importance=USUAL_IMPORTANCE,
        tags=("summary",),
        related=_name_files(row, ("files_read", "files_edited")),
    )


def _build_memory(table: str, row: Row, sessions: _Sessions) -> ForeignMemory:
    """Return what observations and summaries share. Numbers count per machine, so the session distinguishes them."""
    session = as_text(row.get("memory_session_id"))
    project = as_text(row.get("merged_into_project")) or as_text(row.get("project"))
    created = parse_time(row.get("created_at_epoch"))
    return ForeignMemory(
        f"{table} {session} {row.get('id')}",
        "",
        project=project.partition("/")[0].strip() or None,  # of a worktree, it is `project/worktree`
        session=sessions.get(session) or None,
        created_at=parse_time(row.get("created_at")) if created is None else created,
    )


def _choose_type(kind: str, concepts: Iterable[str]) -> MemoryType:
    chosen = choose_type(kind)
    is_open = chosen == "semantic" and kind != "decision"
    return "procedural" if is_open and "procedural" in map(choose_type, concepts) else chosen


def _name_files(row: Row, columns: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple(dict.fromkeys(("file", file) for column in columns for file in _read_list(row.get(column))))


def _read_list(value: Any) -> tuple[str, ...]:
    """Return the texts of a list, which the database holds as JSON."""
    return as_texts(as_list(parse_value(value) if isinstance(value, str) else value))


def _join(paragraphs: Iterable[str]) -> str:
    return "\n\n".join(filter(None, map(str.strip, paragraphs)))


def find(machine: Machine) -> list[Path]:
    return [machine.get_folder("CLAUDE_MEM_DATA_DIR", machine.home / ".claude-mem") / DATABASE]


CLAUDE_MEM = ForeignSource(
    "claude-mem",
    "claude-mem",
    "PATH is its folder, its database, or a JSON export. Memories join the conversations from which they come.",
    read,
    find,
)
