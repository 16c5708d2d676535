"""Turns to which a copy in another conversation adds: what they were before stays known.

What was added goes with the conversation that added it.
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from everkept.core.records import Record
from everkept.families.history.importing.turns import Piece, Said
from everkept.values import Value, as_dict, replace

SEALED = "sealed"  # the tag of a turn to which copies add no more: one that did is left out
GROWN = "grown"  # the facet that keeps what such a turn was


def grown_tag(conversation: str) -> str:
    """What the turns have to which this conversation added."""
    return f"{GROWN} in {conversation}"


class Growth(Value):
    """Who added to a turn, and what it was before."""

    conversation: str
    before: Said

    def to_json(self) -> dict[str, Any]:
        said = self.before
        return {
            "in": self.conversation,
            "author": said.author,
            "text": said.text,
            "type": said.type,
            "facets": said.facets,
            "pieces": [as_dict(each) for each in sorted(said.pieces, key=lambda each: each.id)],
        }


def growths_of(turn: Record) -> tuple[Growth, ...]:
    """From the first to the last."""
    return tuple(
        Growth(
            each["in"],
            _said(
                replace(turn, author=each["author"]),
                each["text"],
                each["type"],
                each["facets"],
                [Piece(**piece) for piece in each["pieces"]],
            ),
        )
        for each in cast(list[dict[str, Any]], turn.facets.get(GROWN, []))
    )


def own_text(turn: Record) -> str:
    """Without what others have added."""
    growths = growths_of(turn)
    return growths[0].before.text if growths else turn.text


def as_stored(turn: Record, code: Iterable[Record]) -> Said:
    """What a turn and its code say now."""
    facets = {name: v for name, v in turn.facets.items() if name not in (GROWN, "sequence")}
    return _said(turn, turn.text, turn.type or "", facets, [_piece(each) for each in code])


def _said(
    turn: Record, text: str, kind: str, facets: dict[str, Any], pieces: Sequence[Piece]
) -> Said:
    return Said(
        id=turn.id,
        conversation=turn.parent or "",
        parent=None,
        session=turn.session,
        author=turn.author,
        type=kind,
        text=text,
        words=None,
        at=turn.at,
        project=turn.scope or None,
        branch=facets.get("branch"),
        facets=facets,
        pieces=tuple(pieces),
        is_marked=False,
        is_whole=True,
        reader=None,
        place=None,
        files=(),
        masked=(),
        cut=0,
    )


def _piece(code: Record) -> Piece:
    return Piece(
        id=code.id,
        text=code.text,
        language=code.type,
        file=code.name,
        change=code.facets["change"],
        replaced=code.facets.get("replaced"),
    )
