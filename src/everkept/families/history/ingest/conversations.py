"""Drafts of conversations and turns during an import, and tombstones of removed turns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from everkept.core.records import Delete, Insert, Record, Step, Update
from everkept.families.history.ingest.prepared_turns import CodePiece, PreparedTurn
from everkept.families.history.model import CONVERSATION, SAID, TURN
from everkept.values import Value, as_dict, field, replace

TOMBSTONE = "forgotten"  # type of a tombstone


def build_tombstone_id(turn_id: str) -> str:
    """Return the id of a turn's tombstone. It is stored before the turn is purged, so one of them always exists."""
    return f"grave_{turn_id.removeprefix('turn_')}"


def build_tombstone(turn_id: str, conversation: str, session: str | None, happened: int, at: int) -> list[Step]:
    """Return the steps that keep a turn out permanently. `conversation` is empty if that was never stored."""
    return _build_deleted_record(build_tombstone_id(turn_id), TOMBSTONE, conversation, session, happened, at)


def build_deleted_turn(turn_id: str, conversation: str, session: str | None, happened: int, at: int) -> list[Step]:
    """Return the steps that store a turn as deleted. A later import may restore it."""
    return _build_deleted_record(turn_id, SAID, conversation, session, happened, at)


def _build_deleted_record(
    record_id: str, kind: str, conversation: str, session: str | None, happened: int, at: int
) -> list[Step]:
    bare = Record(
        id=record_id,
        kind=TURN,
        created_at=at,
        updated_at=at,
        type=kind,
        parent=conversation or None,
        session=session,
        occurred_at=happened,
    )
    return [Insert(bare), Delete(bare.ref)]


SEALED_TAG = "sealed"  # tag of a turn that copies can no longer extend, because one that did is excluded
GROWTH_FACET = "grown"  # facet with the earlier states of a turn that copies extended


def build_growth_tag(conversation: str) -> str:
    """Return the tag of turns that this conversation extended."""
    return f"{GROWTH_FACET} in {conversation}"


class TurnGrowth(Value):
    """The conversation that extended a turn, and the turn before that."""

    conversation: str
    before: PreparedTurn

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


def parse_growths(turn: Record) -> tuple[TurnGrowth, ...]:
    """Return the growths of a turn, oldest first."""
    return tuple(
        TurnGrowth(
            each["in"],
            _build_prepared_turn(
                replace(turn, author=each["author"]),
                each["text"],
                each["type"],
                each["facets"],
                [CodePiece(**piece) for piece in each["pieces"]],
            ),
        )
        for each in cast(list[dict[str, Any]], turn.facets.get(GROWTH_FACET, []))
    )


def get_own_text(turn: Record) -> str:
    """Return the text without additions from other conversations."""
    growths = parse_growths(turn)
    return growths[0].before.text if growths else turn.text


def to_prepared_turn(turn: Record, code: Iterable[Record]) -> PreparedTurn:
    """Return the present content of a turn and its code."""
    facets = {name: v for name, v in turn.facets.items() if name not in (GROWTH_FACET, "sequence")}
    return _build_prepared_turn(turn, turn.text, turn.type or "", facets, [_to_piece(each) for each in code])


def _build_prepared_turn(
    turn: Record, text: str, kind: str, facets: dict[str, Any], pieces: Sequence[CodePiece]
) -> PreparedTurn:
    return PreparedTurn(
        id=turn.id,
        conversation=turn.parent or "",
        parent=None,
        session=turn.session,
        author=turn.author,
        type=kind,
        text=text,
        words=None,
        at=turn.effective_at,
        project=turn.scope or None,
        branch=facets.get("branch"),
        facets=facets,
        pieces=tuple(pieces),
    )


def _to_piece(code: Record) -> CodePiece:
    return CodePiece(
        id=code.id,
        text=code.text,
        language=code.type,
        file=code.name,
        change=code.facets["change"],
        replaced=code.facets.get("replaced"),
    )


class TurnSlot(Value, frozen=False):
    """The stored and the planned state of a turn. `said` is None if the portion does not contain the turn."""

    owner: str  # its conversation
    session: str | None
    stored: Record | None
    is_live: bool
    position: int
    at: int
    sequence: int = 0  # order in which the turns of a conversation came
    scope: str = ""
    tags: frozenset[str] = frozenset()  # readings in which it came, and conversations that extended it
    said: PreparedTurn | None = None
    grown: tuple[TurnGrowth, ...] = ()  # additions from copies in other conversations

    @classmethod
    def from_record(cls, record: Record) -> "TurnSlot":
        return cls(
            record.parent or "",
            record.session,
            record,
            record.deleted_at is None,
            record.position or 0,
            record.effective_at,
            record.facets.get("sequence", 0),
            record.scope,
            frozenset(record.tags),
            grown=parse_growths(record),
        )

    @property
    def text(self) -> str:
        if self.said is not None:
            return self.said.text
        return "" if self.stored is None else self.stored.text

    @property
    def branch(self) -> str | None:
        if self.said is not None:
            return self.said.branch
        return None if self.stored is None else self.stored.facets.get("branch")

    def is_prefix_of(self, said: PreparedTurn) -> bool:
        """Return whether the turn is an older state of `said`."""
        is_longer = said.is_whole and len(said.text) > len(self.text)
        return is_longer and said.text.startswith(self.text)

    def grow(self, said: PreparedTurn, conversation: str, code: Iterable[Record]) -> None:
        """Extend the turn by a longer copy in this conversation. `code` is the code of the stored turn."""
        is_another = not self.grown or self.grown[-1].conversation != conversation
        before = self.said or (self.stored and to_prepared_turn(self.stored, code))
        if is_another and before is not None:
            self.set_growths(*self.grown, TurnGrowth(conversation, before))
        self.said = said

    def catch_up(self, said: PreparedTurn) -> None:
        """Assign text that copies added earlier to the turn's own conversation, which now contains it."""
        for number, growth in reversed(list(enumerate(self.grown))):
            if len(growth.before.text) <= len(said.text):
                rest = self.grown[number + 1 :]
                self.set_growths(TurnGrowth(growth.conversation, said), *rest)
                return

    def shrink(self, conversation: str) -> None:
        """Remove the additions of this conversation and all later ones."""
        for number, growth in enumerate(self.grown):
            if growth.conversation == conversation:
                self.said = growth.before
                self.set_growths(*self.grown[:number])
                break

    def set_growths(self, *growths: TurnGrowth) -> None:
        old = {build_growth_tag(growth.conversation) for growth in self.grown}
        new = {build_growth_tag(growth.conversation) for growth in growths}
        self.grown, self.tags = growths, (self.tags - old) | new


ExclusionReason = Literal["marker", "forgotten", "excluded"]
PERMANENT_REASONS = ("marker", "forgotten")  # reasons that remain when settings change

# Tags of conversations with pending work, by which they are found.
PURGING_TAG = "purging"  # excluded, but some turns may still be stored
UNSORTED_TAG = "unsorted"  # a turn came late, or one was removed


def build_part_tag(conversation: str) -> str:
    """Return the tag of conversations of agents that this conversation started."""
    return f"part of {conversation}"


def get_exclusion(record: Record | None) -> str | None:
    return None if record is None else record.facets.get("left_out")


class TurnTotals(Value, frozen=False):
    """Summary of the turns of a conversation, which may come in any order."""

    turns: int = 0
    began: int | None = None
    ended: int | None = None
    scope: tuple[int, str] | None = None  # the first one, with the sequence of its turn
    branch: tuple[int, str] | None = None

    def add(self, at: int, sequence: int, scope: str, branch: str | None) -> None:
        self.turns += 1
        self.began = at if self.began is None else min(at, self.began)
        self.ended = at if self.ended is None else max(at, self.ended)
        if scope and (self.scope is None or sequence < self.scope[0]):
            self.scope = (sequence, scope)
        if branch and (self.branch is None or sequence < self.branch[0]):
            self.branch = (sequence, branch)


class ConversationDraft(Value, frozen=False):
    """The planned state of a conversation. It is written only if `is_kept`."""

    id: str
    session: str | None
    stored: Record | None = None
    name: str | None = None
    scope: str = ""
    occurred_at: int | None = None
    tags: set[str] = field(default_factory=set[str])
    facets: dict[str, Any] = field(default_factory=dict[str, Any])
    is_kept: bool = False

    @classmethod
    def from_record(cls, record: Record) -> "ConversationDraft":
        return cls(
            record.id,
            record.session,
            record,
            record.name,
            record.scope,
            record.occurred_at,
            set(record.tags),
            dict(record.facets),
        )

    @property
    def exclusion_reason(self) -> str | None:
        return self.facets.get("left_out")

    @property
    def is_permanently_excluded(self) -> bool:
        return self.exclusion_reason in PERMANENT_REASONS

    @property
    def next_position(self) -> int:
        return self.facets.get("turns", 0)

    @property
    def end_time(self) -> int | None:
        return self.facets.get("ended")

    @property
    def is_present(self) -> bool:
        return self.is_kept or self.stored is not None

    @property
    def has_turns(self) -> bool:
        """Return whether it has, or had, stored turns."""
        return self.next_position > 0

    def exclude(self, why: ExclusionReason, *, scope: str = "") -> None:
        """Remove all content. Keep `scope` if the exclusion may end. A forgotten one loses its session id too."""
        self.name, self.scope, self.occurred_at = None, scope, None
        if why == "forgotten":
            self.session = None
        self.tags = {tag for tag in self.tags if tag.startswith(build_part_tag(""))}
        if why != "excluded":
            self.tags.add(PURGING_TAG)  # even if it is new, because its agents may already be stored
        self.facets = {"source": self.facets.get("source"), "left_out": why}
        self.is_kept = True

    def include(self) -> None:
        del self.facets["left_out"]
        self.scope = ""

    def assign_position(self, at: int) -> int:
        """Return the position of the next turn."""
        if self.end_time is not None and at < self.end_time:
            self.tags.add(UNSORTED_TAG)
        position = self.next_position
        self.facets["turns"] = position + 1
        return position

    def assign_sequence(self) -> int:
        """Return the number of the next turn. Positions may change, but the sequence keeps the order of arrival."""
        self.is_kept = True
        number = self.facets.get("sequence", 0)
        self.facets["sequence"] = number + 1
        return number

    def add_turn(self, at: int, project: str | None, branch: str | None) -> None:
        self.is_kept = True
        self.facets["ended"] = max(at, self.facets.get("ended", at))
        self.occurred_at = at if self.occurred_at is None else min(at, self.occurred_at)
        if project and not self.scope:
            self.scope = self.facets["project"] = project
        if branch:
            self.facets.setdefault("branch", branch)

    def set_default_title(self, words: str, position: int) -> None:
        """Set a title from a turn, unless the conversation has a better one."""
        named = self.facets.get("named")
        if self.name is None or (named is not None and position <= named):
            self.name, self.facets["named"] = words, position

    def set_title(self, title: str) -> None:
        self.name = title
        self.facets.pop("named", None)
        self.is_kept = True

    def rewind(self, left: TurnTotals) -> None:
        """Update the conversation after turns were removed. The other positions are assigned later."""
        self.tags.add(UNSORTED_TAG)
        if not left.turns:
            self.facets["turns"] = 0
        self.settle(left)

    def settle(self, gist: TurnTotals) -> None:
        """Set the values from the remaining turns."""
        self.is_kept = True
        self.occurred_at = gist.began
        self.scope = gist.scope[1] if gist.scope else ""
        told = {
            "ended": gist.ended,
            "project": self.scope or None,
            "branch": gist.branch and gist.branch[1],
            "reader": self.facets.get("reader") if gist.turns else None,
        }
        self.facets |= told
        self.facets = {name: value for name, value in self.facets.items() if value is not None or name not in told}

    def build_step(self, at: int) -> Step:
        values: Mapping[str, Any] = {
            "name": self.name,
            "session": self.session,
            "scope": self.scope,
            "occurred_at": self.occurred_at,
            "tags": tuple(sorted(self.tags)),
            "facets": self.facets,
        }
        if self.stored is not None:
            # Even without differences, to detect that another process excluded the conversation and changed its
            # version.
            return Update(self.id, values, self.stored.version)
        return Insert(Record(id=self.id, kind=CONVERSATION, created_at=at, updated_at=at, **values))
