"""A conversation while turns are added to it and removed from it, with their tombstones."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from everkept.core.records import Delete, Insert, Record, Step, Update
from everkept.families.history.ingest.prepared_turns import Piece, Said
from everkept.families.history.model import CONVERSATION, SAID, TURN
from everkept.values import Value, as_dict, field, replace

FORGOTTEN = "forgotten"  # the type of a grave


def grave_id(turn_id: str) -> str:
    """A grave is dug beside its turn, before that is purged: one of the two is always there."""
    return f"grave_{turn_id.removeprefix('turn_')}"


def buried(
    turn_id: str, conversation: str, session: str | None, happened: int, at: int
) -> list[Step]:
    """The steps that say of a turn that it must not come back, and nothing of what it was.

    Without a conversation, where that was never in either.
    """
    return _deleted(grave_id(turn_id), FORGOTTEN, conversation, session, happened, at)


def taken_back(
    turn_id: str, conversation: str, session: str | None, happened: int, at: int
) -> list[Step]:
    """The steps that leave of a turn what a deletion leaves: it may be said again."""
    return _deleted(turn_id, SAID, conversation, session, happened, at)


def _deleted(
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


class Slot(Value, frozen=False):
    """A turn as it was and as it is to be; `said` is None where the portion does not tell."""

    owner: str  # its conversation
    session: str | None
    stored: Record | None
    is_live: bool
    position: int
    at: int
    sequence: int = 0  # the order in which the turns of a conversation came
    scope: str = ""
    tags: frozenset[str] = frozenset()  # the readings that it came in, and who has added to it
    said: Said | None = None
    grown: tuple[Growth, ...] = ()  # what copies of it in other conversations have added

    @classmethod
    def of(cls, record: Record) -> "Slot":
        return cls(
            record.parent or "",
            record.session,
            record,
            record.deleted_at is None,
            record.position or 0,
            record.at,
            record.facets.get("sequence", 0),
            record.scope,
            frozenset(record.tags),
            grown=growths_of(record),
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

    def is_begun_by(self, said: Said) -> bool:
        """Whether it is an older state of what is said now."""
        is_longer = said.is_whole and len(said.text) > len(self.text)
        return is_longer and said.text.startswith(self.text)

    def grow(self, said: Said, conversation: str, code: Iterable[Record]) -> None:
        """A copy in this conversation says more; `code` is what the stored turn has."""
        is_another = not self.grown or self.grown[-1].conversation != conversation
        before = self.said or (self.stored and as_stored(self.stored, code))
        if is_another and before is not None:
            self.has_grown(*self.grown, Growth(conversation, before))
        self.said = said

    def catch_up(self, said: Said) -> None:
        """Its own conversation says now what copies said before."""
        for number, growth in reversed(list(enumerate(self.grown))):
            if len(growth.before.text) <= len(said.text):
                rest = self.grown[number + 1 :]
                self.has_grown(Growth(growth.conversation, said), *rest)
                return

    def shrink(self, conversation: str) -> None:
        """Without what this conversation added, and whoever went on from there."""
        for number, growth in enumerate(self.grown):
            if growth.conversation == conversation:
                self.said = growth.before
                self.has_grown(*self.grown[:number])
                break

    def has_grown(self, *growths: Growth) -> None:
        """By these and no others."""
        old = {grown_tag(growth.conversation) for growth in self.grown}
        new = {grown_tag(growth.conversation) for growth in growths}
        self.grown, self.tags = growths, (self.tags - old) | new


LeftOut = Literal["marker", "forgotten", "excluded"]
FOR_GOOD = ("marker", "forgotten")  # reasons that no change of the settings takes away

# Tags say what is still to be done to a conversation, so that it can be found.
PURGING = "purging"  # it is left out, and some of its turns may be there yet
UNSORTED = "unsorted"  # a turn came later than others that happened after it, or one went


def part_tag(conversation: str) -> str:
    """What the conversations of agents have that this one sent."""
    return f"part of {conversation}"


def left_out_of(record: Record | None) -> str | None:
    return None if record is None else record.facets.get("left_out")


class Gist(Value, frozen=False):
    """What the turns of a conversation say of the whole. They may come in any order."""

    turns: int = 0
    began: int | None = None
    ended: int | None = None
    scope: tuple[int, str] | None = None  # the first that was told, with the turn's sequence
    branch: tuple[int, str] | None = None

    def add(self, at: int, sequence: int, scope: str, branch: str | None) -> None:
        self.turns += 1
        self.began = at if self.began is None else min(at, self.began)
        self.ended = at if self.ended is None else max(at, self.ended)
        if scope and (self.scope is None or sequence < self.scope[0]):
            self.scope = (sequence, scope)
        if branch and (self.branch is None or sequence < self.branch[0]):
            self.branch = (sequence, branch)


class Talk(Value, frozen=False):
    """A conversation as it is to be. It is written where `is_kept`."""

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
    def of(cls, record: Record) -> "Talk":
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
    def left_out(self) -> str | None:
        return self.facets.get("left_out")

    @property
    def is_out_for_good(self) -> bool:
        return self.left_out in FOR_GOOD

    @property
    def next_position(self) -> int:
        return self.facets.get("turns", 0)

    @property
    def ended(self) -> int | None:
        return self.facets.get("ended")

    @property
    def is_there(self) -> bool:
        return self.is_kept or self.stored is not None

    @property
    def is_begun(self) -> bool:
        """Whether it has, or had, turns of which something is known."""
        return self.next_position > 0

    def leave_out(self, why: LeftOut, *, scope: str = "") -> None:
        """Nothing of it stays; `scope` is kept for what may be taken in again some day.

        Of one that was forgotten not even what its program calls it.
        """
        self.name, self.scope, self.occurred_at = None, scope, None
        if why == "forgotten":
            self.session = None
        self.tags = {tag for tag in self.tags if tag.startswith(part_tag(""))}
        if why != "excluded":
            self.tags.add(PURGING)  # of one that is new, agents may have been there before
        self.facets = {"source": self.facets.get("source"), "left_out": why}
        self.is_kept = True

    def take_in_again(self) -> None:
        del self.facets["left_out"]
        self.scope = ""

    def place(self, at: int) -> int:
        """The position of a turn that comes next."""
        if self.ended is not None and at < self.ended:
            self.tags.add(UNSORTED)
        position = self.next_position
        self.facets["turns"] = position + 1
        return position

    def next_sequence(self) -> int:
        """The number of a turn that comes now; positions change, and this tells what came when."""
        self.is_kept = True
        number = self.facets.get("sequence", 0)
        self.facets["sequence"] = number + 1
        return number

    def note(self, at: int, project: str | None, branch: str | None) -> None:
        """What a turn says of the whole."""
        self.is_kept = True
        self.facets["ended"] = max(at, self.facets.get("ended", at))
        self.occurred_at = at if self.occurred_at is None else min(at, self.occurred_at)
        if project and not self.scope:
            self.scope = self.facets["project"] = project
        if branch:
            self.facets.setdefault("branch", branch)

    def call(self, words: str, position: int) -> None:
        """Gives it a name from a turn, unless it has one from elsewhere."""
        named = self.facets.get("named")
        if self.name is None or (named is not None and position <= named):
            self.name, self.facets["named"] = words, position

    def entitle(self, title: str) -> None:
        self.name = title
        self.facets.pop("named", None)
        self.is_kept = True

    def rewind(self, left: Gist) -> None:
        """Without some of its turns; where the others stand is settled later."""
        self.tags.add(UNSORTED)
        if not left.turns:
            self.facets["turns"] = 0
        self.settle(left)

    def settle(self, gist: Gist) -> None:
        """After turns were taken back: what is left tells all."""
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
        self.facets = {
            name: value
            for name, value in self.facets.items()
            if value is not None or name not in told
        }

    def step(self, at: int) -> Step:
        values: Mapping[str, Any] = {
            "name": self.name,
            "session": self.session,
            "scope": self.scope,
            "occurred_at": self.occurred_at,
            "tags": tuple(sorted(self.tags)),
            "facets": self.facets,
        }
        if self.stored is not None:
            # Also where nothing differs: whoever left it out meanwhile has changed its version.
            return Update(self.id, values, self.stored.version)
        return Insert(Record(id=self.id, kind=CONVERSATION, created_at=at, updated_at=at, **values))
