"""A hint of a line or two: which tool would find what, and why it is worth a call."""

from collections.abc import Sequence

from everkept.core.text import counted
from everkept.core.times import ago
from everkept.hooks.prompting.conditions import Reason
from everkept.hooks.prompting.judging import Find
from everkept.language.telling_words import Word

MOST_WORDS = 8  # of the query that is proposed

_REASONS: dict[Reason | None, str] = {
    "similar work": "This is close to earlier work",
    "how to": "Something like this was worked on before",
    "similar error": "An error like this one came up before",
    "related feature": "Related things were built before",
    None: "The prompt asks about earlier work",
}


def suggestion(reason: Reason | None, finds: Sequence[Find], query: str, now: int) -> str:
    """What the assistant is told; no stored text is in it."""
    told = _REASONS[reason]
    if finds:
        newest = max(find.record.at for find in finds)
        told += f" ({counted(len(finds), 'record')}, the newest {ago(newest, now)})"
    tool, argument = _tool(reason, finds)
    return f'Everkept: {told}. If it would help, call {tool} with {argument} "{query}".'


def query_of(words: Sequence[Word]) -> str:
    return " ".join(word.text for word in words[:MOST_WORDS])


def fits(text: str, budget: int) -> bool:
    """Whether it takes no more tokens."""
    if len(text.encode("utf-8")) <= budget:  # no token is shorter than a byte
        return True
    from everkept.core.tokens import token_count

    return token_count(text) <= budget


def _tool(reason: Reason | None, finds: Sequence[Find]) -> tuple[str, str]:
    """That which finds what was found; of memories no search of conversations knows anything."""
    if finds and all(find.is_memory for find in finds):
        return "recall_memories", "query"
    if reason == "similar error":
        return "find_similar_problems", "problem_description"
    if any(find.is_memory for find in finds):
        return "recall_memories or recall_previous_discussions", "query"
    return "recall_previous_discussions", "query"
