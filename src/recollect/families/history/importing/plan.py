"""What a portion of a transcript makes of the conversations and turns that are there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from recollect.core.records import Record
from recollect.core.transcripts import Rewound, Titled
from recollect.families.history.importing.checkpoints import Checkpoint, Previous
from recollect.families.history.importing.conversations import (
    TITLE_LENGTH,
    UNSORTED,
    Talk,
    left_out_of,
    part_tag,
)
from recollect.families.history.importing.exclusion import Exclusion
from recollect.families.history.importing.graves import FORGOTTEN
from recollect.families.history.importing.texts import Cleaner, clean
from recollect.families.history.importing.turns import Said
from recollect.families.history.model import conversation_id, turn_id

Prepared = Said | Titled | Rewound


@dataclass(frozen=True, slots=True)
class Rules:
    """What an import is told to take in."""

    since: int | None
    exclusion: Exclusion
    masks: bool


@dataclass(slots=True)
class Slot:
    """A turn as it was and as it is to be; `said` is None where the portion does not tell."""

    owner: str  # its conversation
    session: str
    stored: Record | None
    is_live: bool
    position: int
    at: int
    scope: str = ""
    said: Said | None = None

    @classmethod
    def of(cls, record: Record) -> "Slot":
        return cls(
            record.parent or "",
            record.session or "",
            record,
            record.deleted_at is None,
            record.position or 0,
            record.at,
            record.scope,
        )

    @property
    def is_forgotten(self) -> bool:
        return self.stored is not None and self.stored.type == FORGOTTEN

    @property
    def text(self) -> str:
        if self.said is not None:
            return self.said.text
        return "" if self.stored is None else self.stored.text


@dataclass(slots=True)
class Known:
    """What the store has of that which a portion speaks of.

    Of a conversation that is rewound, all turns.
    """

    conversations: dict[str, Record] = field(default_factory=dict[str, Record])
    turns: dict[str, Record] = field(default_factory=dict[str, Record])


class Plan:
    """Plays the events of a portion against what is known. No event is seen twice."""

    def __init__(
        self, source: str, checkpoint: Checkpoint, known: Known, rules: Rules, modified: int
    ) -> None:
        self._source = source
        self._rules = rules
        self._modified = modified
        self._known = known
        self.checkpoint = checkpoint
        self.talks: dict[str, Talk] = {}
        self.slots = {turn.id: Slot.of(turn) for turn in known.turns.values()}
        self.guards: dict[str, Record] = {}  # what must not have changed, though we leave it alone
        self.left_out = 0

    def play(self, events: Sequence[Prepared]) -> None:
        self._heed_markers(event for event in events if isinstance(event, Said))
        for event in events:
            match event:
                case Said():
                    self._hear(event)
                case Titled():
                    self._entitle(event)
                case Rewound():
                    self._rewind(event)
        for talk in self.talks.values():
            if talk.left_out:
                for slot in self._slots_of(talk):
                    slot.said, slot.is_live = None, False

    def _heed_markers(self, turns: Iterable[Said]) -> None:
        """What asks to be left out is, and what agents did for it too."""
        for said in turns:
            talk = self._talk(said)
            sender = left_out_of(self._known.conversations.get(said.parent or ""))
            if talk.left_out in ("marker", "forgotten"):
                continue
            if said.is_marked or sender == "marker":
                talk.leave_out("marker")
            elif sender == "forgotten":
                talk.leave_out("forgotten")

    def _hear(self, said: Said) -> None:
        talk = self._talk(said)
        previous = self._previous(said.session)
        slot = self.slots.get(said.id)
        project = self._project(said, talk, slot, previous)
        at = self._time(said, talk, slot, previous)
        copied = None
        if self._is_left_out(talk, project) or self._is_early(at):
            self.left_out += 1
            if slot is None and talk.left_out in ("marker", "forgotten"):
                self.slots[said.id] = Slot(talk.id, said.session, None, False, 0, at)
        elif slot is not None and slot.owner != talk.id:
            copied = slot.session
            self._continue(talk, copied)
        else:
            self._take(said, talk, slot, at, project)
            if previous is not None and previous.copied is not None:
                self._continue(talk, previous.copied)
            self._guard(said.parent)
        if talk.left_out in ("marker", "forgotten"):
            self._drop_title(talk)
            self._set_previous(Previous(said.session, at))
        else:
            kept = copied or (previous and not talk.is_kept and previous.copied) or None
            self._set_previous(Previous(said.session, at, project, kept))

    def _take(
        self, said: Said, talk: Talk, slot: Slot | None, at: int, project: str | None
    ) -> None:
        if slot is None:
            slot = Slot(talk.id, said.session, None, False, 0, at)
            self.slots[said.id] = slot
        if slot.is_forgotten:
            return
        if not talk.is_begun:
            self._begin(talk, said)
        if not slot.is_live:
            slot.position, slot.is_live = talk.place(at), True
        elif said.is_whole and len(said.text) < len(slot.text) and slot.text.startswith(said.text):
            return  # an older state of it
        elif at != slot.at:
            talk.tags.add(UNSORTED)
        slot.said, slot.at, slot.scope = said, at, project or ""
        talk.note(at, project, said.branch)
        if said.words:
            talk.call(said.words, slot.position)

    def _begin(self, talk: Talk, said: Said) -> None:
        if said.parent is not None:
            talk.facets["part_of"] = said.facets["part_of"]
        title = self.checkpoint.title
        if title is not None and title[0] == said.session:
            talk.entitle(title[1])
            self.checkpoint = replace(self.checkpoint, title=None)

    def _continue(self, talk: Talk, session: str) -> None:
        if talk.is_there:
            talk.is_kept = True
            talk.facets.setdefault("continues", session)

    def _is_left_out(self, talk: Talk, project: str | None) -> bool:
        exclusion = self._rules.exclusion
        if talk.left_out == "excluded" and not exclusion.leaves_out(talk.scope):
            talk.take_in_again()
        if talk.left_out in ("marker", "forgotten"):
            return True
        pattern = exclusion.pattern_of(talk.scope if talk.left_out else project or "")
        if pattern is None:
            return False
        excluded = tuple(sorted({*self.checkpoint.excluded, pattern}))
        self.checkpoint = replace(self.checkpoint, excluded=excluded)
        if not talk.is_begun and not talk.left_out:
            talk.leave_out("excluded", scope=project or "")
            self._drop_title(talk)
        return True

    def _is_early(self, at: int) -> bool:
        since = self._rules.since
        if since is None or at >= since:
            return False
        latest = max(since, self.checkpoint.since or since)
        self.checkpoint = replace(self.checkpoint, since=latest)
        return True

    def _time(self, said: Said, talk: Talk, slot: Slot | None, previous: Previous | None) -> int:
        if said.at is not None:
            return said.at
        if slot is not None:
            return slot.at
        if previous is not None and previous.at is not None:
            return previous.at
        return self._modified if talk.ended is None else talk.ended

    def _project(
        self, said: Said, talk: Talk, slot: Slot | None, previous: Previous | None
    ) -> str | None:
        if said.project is not None:
            return said.project
        if slot is not None and slot.owner == talk.id and slot.is_live:
            return slot.scope or None
        return (previous and previous.project) or talk.scope or None

    def _entitle(self, event: Titled) -> None:
        title = Cleaner(self._rules.masks)(" ".join(event.title.split()), TITLE_LENGTH)
        talk = self._met(conversation_id(self._source, event.session))
        if not title or (talk is not None and talk.left_out):
            return
        if talk is not None and talk.is_there:
            talk.entitle(title)
        else:
            self.checkpoint = replace(self.checkpoint, title=(clean(event.session), title))

    def _drop_title(self, talk: Talk) -> None:
        if self.checkpoint.title is not None and self.checkpoint.title[0] == talk.session:
            self.checkpoint = replace(self.checkpoint, title=None)

    def _rewind(self, event: Rewound) -> None:
        talk = self._met(conversation_id(self._source, event.session))
        slot = self.slots.get(turn_id(self._source, event.key))
        if talk is None or talk.left_out or slot is None or not talk.is_there:
            return
        if slot.owner == talk.id and not slot.is_live:
            return
        start = slot.position if slot.owner == talk.id else 0
        live = [each for each in self._slots_of(talk) if each.is_live]
        for each in live:
            if each.position >= start:
                each.is_live, each.said = False, None
        talk.rewind(start, [each.at for each in live if each.is_live])

    def _slots_of(self, talk: Talk) -> list[Slot]:
        return [slot for slot in self.slots.values() if slot.owner == talk.id]

    def _talk(self, said: Said) -> Talk:
        talk = self._met(said.conversation)
        if talk is None:
            talk = self.talks[said.conversation] = Talk(said.conversation, said.session)
            talk.facets["source"] = self._source
            if said.parent is not None:
                talk.tags.add(part_tag(said.parent))
        return talk

    def _met(self, conversation: str) -> Talk | None:
        record = self._known.conversations.get(conversation)
        if conversation not in self.talks and record is not None:
            self.talks[conversation] = Talk.of(record)
        return self.talks.get(conversation)

    def _guard(self, parent: str | None) -> None:
        if parent is not None and parent in self._known.conversations:
            self.guards[parent] = self._known.conversations[parent]

    def _previous(self, session: str) -> Previous | None:
        previous = self.checkpoint.previous
        return previous if previous is not None and previous.session == session else None

    def _set_previous(self, previous: Previous) -> None:
        self.checkpoint = replace(self.checkpoint, previous=previous)


def conversations_in(events: Sequence[Prepared], source: str) -> set[str]:
    """The ids of those that a portion speaks of."""
    found: set[str] = set()
    for event in events:
        if isinstance(event, Said):
            found |= {event.conversation, *([event.parent] if event.parent else [])}
        else:
            found.add(conversation_id(source, event.session))
    return found


def turns_in(events: Sequence[Prepared], source: str) -> set[str]:
    return {
        event.id if isinstance(event, Said) else turn_id(source, event.key)
        for event in events
        if not isinstance(event, Titled)
    }


def rewound_in(events: Sequence[Prepared], source: str) -> set[str]:
    """The ids of conversations of which all turns must be known."""
    return {
        conversation_id(source, event.session) for event in events if isinstance(event, Rewound)
    }
