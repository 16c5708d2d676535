"""Memories with questions about them: conversations in LoCoMo's format, and a set of our own."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

CODING = Path(__file__).parent / "data" / "coding.json"
CODE_BLOCKS = Path(__file__).parent / "data" / "code_blocks.json"
EVERYTHING = Path(__file__).parent / "data" / "everything.json"  # things of all kinds in one project
BLOCKS_OF_CONVERSATION = 8
FIRST_MEMORIES, FIRST_QUESTIONS = 121, 67  # of the coding set before it was enlarged

# The categories of that format, as its authors name them.
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
ADVERSARIAL = CATEGORIES[5]
NOTHING = "nothing"  # questions of the coding set that no memory answers

_SESSION = re.compile(r"session_(\d+)")
_TURN = re.compile(r"D:?(\d+):0*(\d+)")  # also D:11:26, D30:05, and several in one text
_DATE_FORM = "%I:%M %p on %d %B, %Y"


@dataclass(frozen=True, slots=True)
class Memory:
    key: str
    text: str
    at: datetime
    type: str = "episodic"
    author: str | None = None
    session: str | None = None
    position: int | None = None
    importance: float = 0.5


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    wanted: frozenset[str]  # keys of memories; none: nothing answers it
    category: str
    held_out: bool = False  # only read at the end


@dataclass(frozen=True, slots=True)
class QuestionSet:
    name: str
    memories: list[Memory]
    questions: list[Question]


def conversations(path: Path) -> list[QuestionSet]:
    """One set for each conversation; questions whose evidence leads nowhere are left out."""
    samples: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return [_conversation(number, sample) for number, sample in enumerate(samples)]


def coding_set(now: datetime, *, quick: bool = False) -> QuestionSet:
    """What a coding assistant keeps of its projects, in the months before now."""
    data = json.loads(CODING.read_text(encoding="utf-8"))
    memories = [
        Memory(
            entry["id"],
            entry["text"],
            now - timedelta(days=entry["days_ago"]),
            entry["type"],
            author=entry.get("author"),
            importance=entry.get("importance", 0.5),
        )
        for entry in data["memories"]
    ]
    questions = [
        Question(entry["text"], frozenset(entry["wanted"]), entry["kind"], entry.get("held_out", False))
        for entry in data["questions"]
    ]
    if quick:
        return QuestionSet("coding", memories[:FIRST_MEMORIES], questions[:FIRST_QUESTIONS])
    return QuestionSet("coding", memories, questions)


def code_set(now: datetime) -> QuestionSet:
    """Requests for code with the answers, eight in each conversation. The answer has the key."""
    data = json.loads(CODE_BLOCKS.read_text(encoding="utf-8"))
    turns: list[Memory] = []
    for number, block in enumerate(data["blocks"]):
        session, place = divmod(number, BLOCKS_OF_CONVERSATION)
        at = now - timedelta(days=100 - session)
        answer = f"{block['said']}\n\n```{block['language']}\n{block['code']}\n```"
        for step, (key, author, text) in enumerate(
            ((f"asked-{block['id']}", "user", block["asked"]), (block["id"], "assistant", answer))
        ):
            position = 2 * place + step
            moment = at + timedelta(minutes=position)
            turns.append(
                Memory(key, f"{author}: {text}", moment, author=author, session=f"s{session}", position=position)
            )
    questions = [Question(entry["text"], frozenset(entry["wanted"]), "code") for entry in data["questions"]]
    return QuestionSet("code", turns, questions)


def _conversation(number: int, sample: dict[str, Any]) -> QuestionSet:
    memories = list(_turns(sample["conversation"]))
    known = {memory.key for memory in memories}
    questions: list[Question] = []
    for entry in sample["qa"]:
        wanted = frozenset(turn for text in entry["evidence"] for turn in _turn_ids(text)) & known
        if wanted:
            category = CATEGORIES.get(entry["category"], str(entry["category"]))
            questions.append(Question(str(entry["question"]), wanted, category))
    return QuestionSet(str(sample.get("sample_id", number)), memories, questions)


def _turns(conversation: dict[str, Any]) -> Iterator[Memory]:
    for name, turns in conversation.items():
        if not _SESSION.fullmatch(name) or not isinstance(turns, list):
            continue
        started = datetime.strptime(conversation[f"{name}_date_time"], _DATE_FORM)
        for position, turn in enumerate(cast(list[dict[str, Any]], turns)):
            shared = turn.get("blip_caption")
            said = f"{turn['text']} [shares {shared}]" if shared else turn["text"]
            yield Memory(
                turn["dia_id"],
                f"{turn['speaker']}: {said}",
                started.replace(tzinfo=UTC) + timedelta(seconds=position),
                author=turn["speaker"],
                session=name,
                position=position,
            )


def _turn_ids(text: str) -> list[str]:
    return [f"D{session}:{turn}" for session, turn in _TURN.findall(text)]
