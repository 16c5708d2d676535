"""What a portion of a transcript makes of the conversations and turns that are there."""

from collections.abc import Iterable, Mapping, Sequence

from everkept.core.paths import Exclusion
from everkept.core.records import Record
from everkept.core.transcripts import Marked, Rewound, Titled
from everkept.families.history.ingest.checkpoints import Checkpoint, Previous, transcript_of
from everkept.families.history.ingest.conversations import (
    SEALED,
    UNSORTED,
    Gist,
    Slot,
    Talk,
    left_out_of,
    part_tag,
)
from everkept.families.history.ingest.prepared_turns import LONGEST_TITLE, Cleaner, Said
from everkept.families.history.model import conversation_id, turn_id
from everkept.families.history.off_folders import Quiet
from everkept.values import Value, field, replace

Prepared = Said | Titled | Rewound | Marked


class Rules(Value):
    """What an import is told to take in."""

    since: int | None
    exclusion: Exclusion
    masks: bool
    quiet: Quiet = field(default_factory=Quiet)


class Known(Value, frozen=False):
    """What the store has of that which a portion speaks of.

    Of a conversation that is rewound, all turns. `graves` are those of turns, by their ids; `code`
    is that of turns to which a copy may add.
    """

    conversations: dict[str, Record] = field(default_factory=dict[str, Record])
    turns: dict[str, Record] = field(default_factory=dict[str, Record])
    graves: dict[str, Record] = field(default_factory=dict[str, Record])
    code: dict[str, list[Record]] = field(default_factory=dict[str, list[Record]])  # by turn


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
        self.graves: dict[str, Slot] = {}  # of turns that were never in
        self.guards: dict[str, Record] = {}  # what must not have changed, though we leave it alone
        self.left_out = 0
        self.doubled = 0  # turns of a conversation that another reader has told of

    def play(self, events: Sequence[Prepared]) -> None:
        self._heed_markers(events)
        for event in events:
            match event:
                case Said():
                    self._hear(event)
                case Titled():
                    self._entitle(event)
                case Rewound():
                    self._rewind(event)
                case Marked():
                    pass  # it was heeded before all else
        for talk in self.talks.values():
            if talk.left_out:
                for slot in self._slots_of(talk):
                    slot.said, slot.is_live = None, False

    def _heed_markers(self, events: Iterable[Prepared]) -> None:
        """What asks to be left out is, and what agents did for it too."""
        for event in events:
            if isinstance(event, Marked):
                talk = self._marked(event)
                sender = None
            elif isinstance(event, Said):
                talk = self._talk(event)
                sender = left_out_of(self._known.conversations.get(event.parent or ""))
            else:
                continue
            if talk.is_out_for_good:
                continue
            if isinstance(event, Marked) or event.is_marked or sender == "marker":
                talk.leave_out("marker")
            elif sender == "forgotten":
                talk.leave_out("forgotten")

    def _hear(self, said: Said) -> None:
        talk = self._talk(said)
        previous = self._previous(talk)
        slot = self.slots.get(said.id)
        project = self._project(said, talk, slot, previous)
        at = self._time(said, talk, slot, previous)
        copied = None
        if slot is not None and slot.is_live:
            self._see(slot, talk)
        if grave := self._known.graves.get(said.id):
            self.left_out += 1
            copied = grave.session if grave.parent != talk.id else None
            self._continue(talk, copied)
        elif not talk.is_out_for_good and self._is_unheard(said, project, at):
            self.left_out += 1
            self._drop_title(talk)
        elif self._is_left_out(talk, said, project) or self._is_early(at):
            self.left_out += 1
            if talk.is_out_for_good:
                self._keep_out(said, talk, slot, at)
        elif self._is_told_by_another(said, talk):
            self.doubled += 1
        elif slot is not None and slot.owner != talk.id:
            copied = slot.session
            self._continue(talk, copied)
            self._extend(slot, said, talk)
        else:
            self._take(said, talk, slot, at, project)
            if previous is not None and previous.copied is not None:
                self._continue(talk, previous.copied)
            self._guard(said.parent)
        if talk.is_out_for_good:
            self._drop_title(talk)
            self._set_previous(Previous(talk.id, at))
        else:
            kept = copied or (previous and not talk.is_kept and previous.copied) or None
            self._set_previous(Previous(talk.id, at, project, kept))

    def _take(
        self, said: Said, talk: Talk, slot: Slot | None, at: int, project: str | None
    ) -> None:
        if slot is None:
            slot = self.slots[said.id] = Slot(talk.id, said.session, None, False, 0, at)
        if not talk.is_begun:
            self._begin(talk, said)
        if not slot.is_live:
            slot.position, slot.is_live = talk.place(at), True
            slot.sequence = talk.next_sequence()
            slot.tags = (slot.tags - self._older(slot)) | {self.checkpoint.tag}
        elif said.is_whole and len(said.text) < len(slot.text) and slot.text.startswith(said.text):
            slot.catch_up(said)
            return  # an older state of it
        elif at != slot.at:
            talk.tags.add(UNSORTED)
        slot.said, slot.at, slot.scope = said, at, project or ""
        slot.has_grown()
        talk.note(at, project, said.branch)
        if said.words:
            talk.call(said.words, slot.position)

    def _see(self, slot: Slot, talk: Talk) -> None:
        """It has come in this reading, whatever becomes of it.

        When all is told again, the order is that in which it is told now.
        """
        if self.checkpoint.tag in slot.tags:
            return
        if self.checkpoint.reading and slot.owner == talk.id and not talk.left_out:
            slot.sequence = talk.next_sequence()
        slot.tags = frozenset({*slot.tags.difference(self._older(slot)), self.checkpoint.tag})

    def _older(self, slot: Slot) -> set[str]:
        """The tags that it has from earlier readings of this transcript."""
        own = {tag for tag in slot.tags if transcript_of(tag) == self.checkpoint.id}
        return own - {self.checkpoint.tag}

    def _extend(self, slot: Slot, said: Said, talk: Talk) -> None:
        """A copy may have been made while there was less of it, and be read first."""
        owner = self._known.conversations.get(slot.owner)
        is_kept = slot.is_live and owner is not None and not left_out_of(owner)
        if is_kept and slot.is_begun_by(said) and SEALED not in slot.tags:
            slot.grow(said, talk.id, self._known.code.get(said.id, ()))
            self._guard(slot.owner)

    def _keep_out(self, said: Said, talk: Talk, slot: Slot | None, at: int) -> None:
        """No copy of it brings it in: neither the turn, nor what it says more than another's."""
        if slot is None:
            self.graves[said.id] = Slot(talk.id, talk.session, None, False, 0, at)
        elif slot.owner != talk.id and slot.is_begun_by(said):
            slot.tags |= {SEALED}

    def _begin(self, talk: Talk, said: Said) -> None:
        if said.parent is not None:
            talk.facets["part_of"] = said.facets["part_of"]
        if said.reader is not None:
            talk.facets["reader"] = said.reader
        title = self.checkpoint.title
        if title is not None and title[0] == talk.id:
            talk.entitle(title[1])
            self.checkpoint = replace(self.checkpoint, title=None)

    def _continue(self, talk: Talk, session: str | None) -> None:
        if talk.is_there and session and not talk.is_out_for_good:
            talk.is_kept = True
            talk.facets.setdefault("continues", session)

    def _is_told_by_another(self, said: Said, talk: Talk) -> bool:
        """Two readers of one program do not give a turn the same key: one of them tells."""
        return talk.is_begun and talk.facets.get("reader") != said.reader

    def _is_left_out(self, talk: Talk, said: Said, project: str | None) -> bool:
        """A turn in an excluded folder is, and one that touched a file in such a folder."""
        exclusion = self._rules.exclusion
        if talk.left_out == "excluded" and not exclusion.leaves_out(talk.scope):
            talk.take_in_again()
        if talk.is_out_for_good:
            return True
        folder = said.place or project or ""
        # A folder may be known by the name alone in which a secret is masked.
        known = (talk.scope,) if talk.left_out else (folder, project or "")
        pattern = next(filter(None, map(exclusion.pattern_of, known)), None)
        if pattern is not None and not talk.is_begun and not talk.left_out:
            talk.leave_out("excluded", scope=project or "")
            self._drop_title(talk)
        pattern = pattern or exclusion.pattern_of_files(said.files, folder)
        if pattern is None:
            return False
        excluded = tuple(sorted({*self.checkpoint.excluded, pattern}))
        self.checkpoint = replace(self.checkpoint, excluded=excluded)
        return True

    def _is_unheard(self, said: Said, project: str | None, at: int) -> bool:
        """A turn of a project that is off is, and one that was said while it was."""
        quiet, folder = self._rules.quiet, said.place or project
        if not quiet.silences:
            return False
        if quiet.covers(folder, at):
            if said.at is None and said.id not in self.slots:
                # A file that is written to later would give it a time when it was heard.
                self.graves[said.id] = Slot("", None, None, False, 0, at)
            return True
        off = quiet.switched_off(folder)
        if off is None:
            return False
        # Said before: once the project is on again, all is read again.
        self.checkpoint = replace(self.checkpoint, off=tuple(sorted({*self.checkpoint.off, off})))
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
        if grave := self._known.graves.get(said.id):
            return grave.at
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
        title = Cleaner(self._rules.masks)(" ".join(event.title.split()), LONGEST_TITLE)
        conversation = conversation_id(self._source, event.session)
        talk = self._met(conversation)
        if not title or (talk is not None and talk.left_out) or self._is_in_silence(conversation):
            return
        if talk is not None and talk.is_there:
            talk.entitle(title)
        else:
            self.checkpoint = replace(self.checkpoint, title=(conversation, title))

    def _is_in_silence(self, conversation: str) -> bool:
        """Whether the last turn of it was not to be heard: what it is called then tells of it."""
        last, quiet = self.checkpoint.previous, self._rules.quiet
        if last is None or last.conversation != conversation or not quiet.silences:
            return False
        return quiet.switched_off(last.project) is not None or quiet.covers(
            last.project, last.at or 0
        )

    def _drop_title(self, talk: Talk) -> None:
        if self.checkpoint.title is not None and self.checkpoint.title[0] == talk.id:
            self.checkpoint = replace(self.checkpoint, title=None)

    def _rewind(self, event: Rewound) -> None:
        """By the order in which turns came: their times may be in any."""
        talk = self._met(conversation_id(self._source, event.session))
        turn = turn_id(self._source, event.key)
        slot, grave = self.slots.get(turn), self._known.graves.get(turn)
        if talk is None or talk.left_out or not talk.is_there:
            return
        owner = slot.owner if slot is not None else grave and grave.parent
        if not owner:
            return
        start = 0  # of a copy, with which it begins
        if owner == talk.id:
            if slot is None or not slot.is_live or self._older(slot):
                return  # it is taken back already, or does not come any more
            start = slot.sequence
        left = Gist()
        for each in self._slots_of(talk):
            if each.is_live and each.sequence >= start:
                each.is_live, each.said = False, None
            elif each.is_live:
                left.add(each.at, each.sequence, each.scope, each.branch)
        talk.rewind(left)

    def _slots_of(self, talk: Talk) -> list[Slot]:
        return [slot for slot in self.slots.values() if slot.owner == talk.id]

    def _talk(self, said: Said) -> Talk:
        talk = self._met(said.conversation)
        if talk is None:
            talk = self._new(said.conversation, said.session)
            if said.parent is not None:
                talk.tags.add(part_tag(said.parent))
        return talk

    def _marked(self, event: Marked) -> Talk:
        conversation = conversation_id(self._source, event.session)
        session = Cleaner(self._rules.masks).name(event.session)
        return self._met(conversation) or self._new(conversation, session)

    def _new(self, conversation: str, session: str | None) -> Talk:
        talk = self.talks[conversation] = Talk(conversation, session)
        talk.facets["source"] = self._source
        return talk

    def _met(self, conversation: str) -> Talk | None:
        record = self._known.conversations.get(conversation)
        if conversation not in self.talks and record is not None:
            self.talks[conversation] = Talk.of(record)
        return self.talks.get(conversation)

    def _guard(self, conversation: str | None) -> None:
        if conversation is not None and conversation in self._known.conversations:
            self.guards[conversation] = self._known.conversations[conversation]

    def _previous(self, talk: Talk) -> Previous | None:
        previous = self.checkpoint.previous
        return previous if previous is not None and previous.conversation == talk.id else None

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
        if isinstance(event, Said | Rewound)
    }


def rewound_in(events: Sequence[Prepared], source: str) -> set[str]:
    """The ids of conversations of which all turns must be known."""
    return {
        conversation_id(source, event.session) for event in events if isinstance(event, Rewound)
    }


def grown_in(events: Sequence[Prepared], turns: Mapping[str, Record]) -> set[str]:
    """The ids of turns of which a copy says more."""
    return {
        event.id
        for event in events
        if isinstance(event, Said)
        and (turn := turns.get(event.id)) is not None
        and turn.parent != event.conversation
        and Slot.of(turn).is_begun_by(event)
    }
