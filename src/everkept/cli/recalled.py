"""Memories on a terminal: each with where it comes from and why it is there."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from everkept.core.times import ago, now, parsed

Row = Mapping[str, Any]

LONGEST_SHOWN = 1_000  # characters of a memory
SHORTEST_SHARE = 0.005  # of a score; what counts less is not told


def print_memories(out: Console, memories: Sequence[Row]) -> None:
    if not memories:
        out.print("No memories.")
    for memory in memories:
        _print_memory(out, memory)


def print_pairs(out: Console, similar: Sequence[Row]) -> None:
    """Memories that say nearly the same, two by two."""
    for pair in similar:
        out.print(_plain(f"{pair['score']:.2f}  {pair['first']['id']}  {pair['second']['id']}"))
        out.print(_plain(f"      {pair['first']['content']}", "dim"))
        out.print(_plain(f"      {pair['second']['content']}", "dim"))


def _print_memory(out: Console, memory: Row) -> None:
    score = memory.get("relevance_score")
    head = Text(f"{score:.2f}  " if score is not None else "", style="bold green")
    # Stored text is data: what looks like markup in it is shown, not obeyed.
    head.append(_excerpt(str(memory["content"])), style="default")
    out.print(head, soft_wrap=True)
    out.print(_plain("      " + " · ".join(_facts(memory)), "dim"), soft_wrap=True)
    if why := memory.get("why"):
        out.print(_plain("      why: " + _reasons(why), "cyan"), soft_wrap=True)


def _excerpt(content: str) -> str:
    if len(content) <= LONGEST_SHOWN:
        return content
    return f"{content[:LONGEST_SHOWN].rstrip()}… ({len(content):,} characters; --json shows all)"


def _facts(memory: Row) -> list[str]:
    marks = [
        "pinned" if memory.get("pinned") else "",
        "automatic" if memory.get("automatic") else "",
        f"superseded by {memory['superseded_by']}" if memory.get("superseded_by") else "",
        "consolidated" if memory.get("consolidated") else "",
        "forgotten" if memory.get("forgotten") else "",
    ]
    when = memory.get("occurred_at") or memory["created_at"]
    tags: Sequence[str] = memory.get("tags") or []
    facts = [
        str(memory["type"]),
        str(memory["scope"]),
        str(memory.get("project") or ""),
        str(memory.get("author") or ""),
        ago(parsed(when), now()),
        " ".join(f"#{tag}" for tag in tags),
        *marks,
        str(memory["id"]),
    ]
    return [fact for fact in facts if fact]


def _reasons(why: Mapping[str, float]) -> str:
    shown = [(part, share) for part, share in why.items() if abs(share) >= SHORTEST_SHARE]
    return ", ".join(f"{part} {share:.2f}" for part, share in shown)


def _plain(text: str, style: str = "") -> Text:
    return Text(text, style=style)
