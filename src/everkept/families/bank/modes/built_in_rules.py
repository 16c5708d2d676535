"""The rules that hold where a project has none of its own."""

from collections.abc import Mapping

from everkept.families.bank.model import (
    ACTIVE,
    CORE_FILES,
    DECISIONS,
    PATTERNS,
    PRODUCT,
    PROGRESS,
    Mode,
)
from everkept.families.bank.modes.triggers import DEFAULT
from everkept.values import Value, replace


class Rules(Value):
    """What an assistant does in one mode; `source` is the file they were read from."""

    mode: Mode
    general: tuple[str, ...]
    umb: tuple[str, ...]
    files_to_read: tuple[str, ...]
    files_to_update: tuple[str, ...]
    trigger: str | None = DEFAULT
    source: str | None = None

    def without_trigger(self) -> "Rules":
        return replace(self, trigger=None)


_FIRST = "Begin with get_context_digest, so that earlier work is known."
END = "End with complete_umb."
_UMB = (
    "Look back over this conversation for what a later session has to know.",
    "Bring the files to update up to date with it; leave what others wrote as it is.",
    END,
)


def _built_in(mode: Mode, general: tuple[str, ...], updates: tuple[str, ...]) -> Rules:
    return Rules(mode, (_FIRST, *general), _UMB, CORE_FILES, updates)


RULES: Mapping[Mode, Rules] = {
    "architect": _built_in(
        "architect",
        (
            "Design before code: weigh alternatives, and name what each one costs.",
            "Record each decision with log_decision, its alternatives and consequences included.",
            "Keep components and how they depend on each other in the knowledge graph.",
            f"Keep {PATTERNS} and {PRODUCT} in step with the design.",
        ),
        (DECISIONS, PATTERNS, PRODUCT, ACTIVE),
    ),
    "ask": _built_in(
        "ask",
        (
            "Answer from what is recorded: search_memory_bank first, then the files it names.",
            "Say where an answer comes from, and say so when nothing is recorded.",
            "Change no files; a session note may keep what turned out to be missing.",
        ),
        (ACTIVE,),
    ),
    "code": _built_in(
        "code",
        (
            "Follow the recorded patterns and decisions; ask before going against one.",
            "Record what was finished with track_progress.",
            f"Keep the tasks and next steps of {ACTIVE} as they are now.",
        ),
        (PROGRESS, ACTIVE, PATTERNS),
    ),
    "debug": _built_in(
        "debug",
        (
            "Look for earlier trouble of the same kind with graph_search and search_memory_bank.",
            "Write down what was seen and what was ruled out with add_session_note.",
            "Record the cause and its cure once they are known.",
        ),
        (ACTIVE, PROGRESS, DECISIONS),
    ),
    "test": _built_in(
        "test",
        (
            "Check what was built against what was decided.",
            "Record results with track_progress, its status included.",
            f"Put failures among the known issues of {ACTIVE}.",
        ),
        (PROGRESS, ACTIVE),
    ),
}
