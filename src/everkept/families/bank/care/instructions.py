"""The guide for an assistant that meets a memory bank for the first time."""

from collections.abc import Iterable, Mapping

from everkept.families.bank.model import (
    ACTIVE,
    CORE_FILES,
    DECISIONS,
    DEFAULT_MODE,
    MODES,
    PATTERNS,
    PRODUCT,
    PROGRESS,
    Mode,
)

PURPOSES: Mapping[str, str] = {
    PRODUCT: "what the project is for, its parts and technologies",
    ACTIVE: "what is being worked on: tasks, known issues, next steps, session notes",
    PROGRESS: "what was done, newest first",
    DECISIONS: "what was decided, why, and what else was considered",
    PATTERNS: "conventions of architecture, code and documents",
}
MODE_PURPOSES: Mapping[Mode, str] = {
    "architect": "design and planning; decisions and the knowledge graph",
    "ask": "questions; searching and reading",
    "code": "implementation; progress and files",
    "debug": "finding faults; session notes and the graph",
    "test": "testing; progress and files",
}

# Each line is given only where one of its tools is offered, and names those that are.
_WORKFLOW: Mapping[str, tuple[tuple[tuple[str, ...], str], ...]] = {
    "At the start": (
        (("get_memory_bank_status",), "See whether there is a bank, and what it lacks."),
        (("initialize_memory_bank",), "Make one where there is none."),
        (("list_stores", "select_store"), "Choose another one of several banks."),
        (("get_context_digest", "get_context_bundle"), "Read where the work stands."),
    ),
    "During the work": (
        (("search_memory_bank", "graph_search"), "Look before asking the user again."),
        (("track_progress", "add_progress_entry"), "Note each step that is done."),
        (("log_decision",), "Keep a decision with its reasons and alternatives."),
        (("add_session_note",), "Keep observations, questions and blockers."),
        (("update_tasks", "update_active_context"), "Keep tasks and next steps true."),
        (
            ("graph_upsert_entity", "graph_add_observation", "graph_link_entities"),
            "Keep what is known about parts, people and how they belong together.",
        ),
        (
            ("write_memory_bank_file", "batch_write_files"),
            "Rewrite a file; pass the ETag of what you read, so that no other edit is lost.",
        ),
    ),
    "At the end": (
        (("update_active_context",), "Leave the open tasks and the next steps."),
        (("process_umb_command", "complete_umb"), 'On "Update Memory Bank", go through all files.'),
        (("create_backup",), "Before a large change, or now: keep a copy of everything."),
    ),
}


def instructions(tools: Iterable[tuple[str, str]]) -> str:
    """In markdown, for these tools, each with its description; nothing else is mentioned."""
    offered = dict(tools)
    return "\n".join(
        [
            "# Memory bank",
            "",
            "A folder of markdown files that people and assistants share. The files are the"
            " truth: they may be edited by hand at any time, and are read anew each time.",
            *_workflow(offered),
            "",
            "## Core files",
            "",
            *(f"- `{name}`: {PURPOSES[name]}" for name in CORE_FILES),
            "",
            "## Modes",
            "",
            *(f"- `{mode}`: {MODE_PURPOSES[mode]}{_default(mode)}" for mode in MODES),
            "",
            "## Tools",
            "",
            "| Tool | What it does |",
            "|---|---|",
            *(f"| `{name}` | {_cell(description)} |" for name, description in offered.items()),
            "",
        ]
    )


def _workflow(offered: Mapping[str, str]) -> list[str]:
    lines: list[str] = []
    for moment, steps in _WORKFLOW.items():
        told: list[str] = []
        for names, what in steps:
            there = [f"`{name}`" for name in names if name in offered]
            if there:
                told.append(f"- {what} ({', '.join(there)})")
        if told:
            lines += ["", f"## {moment}", "", *told]
    return lines


def _default(mode: Mode) -> str:
    return " (the default)" if mode == DEFAULT_MODE else ""


def _cell(description: str) -> str:
    first, _, _ = description.partition("\n")
    return first.replace("|", "\\|")
