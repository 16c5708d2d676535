"""Plan of an import: the changes that a portion of a transcript makes to conversations and turns."""

from collections.abc import Iterable, Mapping, Sequence

from everkept.core.paths import FolderExclusion
from everkept.core.records import Record
from everkept.core.transcripts import ExclusionEvent, RewindEvent, TitleEvent
from everkept.families.history.ingest.checkpoints import Checkpoint, PreviousTurn, parse_transcript_tag
from everkept.families.history.ingest.conversations import (
    SEALED_TAG,
    UNSORTED_TAG,
    ConversationDraft,
    TurnSlot,
    TurnTotals,
    build_part_tag,
    get_exclusion,
)
from everkept.families.history.ingest.prepared_turns import MAX_TITLE_CHARACTERS, PreparedTurn, TextCleaner
from everkept.families.history.model import build_conversation_id, build_turn_id
from everkept.families.history.off_folders import OffFolders
from everkept.values import Value, field, replace

PreparedEvent = PreparedTurn | TitleEvent | RewindEvent | ExclusionEvent


class ImportRules(Value):
    """Rules that decide which turns an import stores."""

    since: int | None
    exclusion: FolderExclusion
    masks: bool
    off_folders: OffFolders = field(default_factory=OffFolders)


class StoredTurns(Value, frozen=False):
    """Stored records that a portion refers to."""

    conversations: dict[str, Record] = field(default_factory=dict[str, Record])
    turns: dict[str, Record] = field(default_factory=dict[str, Record])  # all turns of a rewound conversation
    tombstones: dict[str, Record] = field(default_factory=dict[str, Record])  # by turn
    code: dict[str, list[Record]] = field(default_factory=dict[str, list[Record]])  # of turns that may grow, by turn


class ImportPlan:
    """Applies the events of a portion to the stored state, each event once."""

    def __init__(
        self, source: str, checkpoint: Checkpoint, known: StoredTurns, rules: ImportRules, modified: int
    ) -> None:
        self._source = source
        self._rules = rules
        self._modified = modified
        self._known = known
        self.checkpoint = checkpoint
        self.talks: dict[str, ConversationDraft] = {}
        self.slots = {turn.id: TurnSlot.from_record(turn) for turn in known.turns.values()}
        self.tombstones: dict[str, TurnSlot] = {}  # of turns that were never stored
        self.guards: dict[str, Record] = {}  # must not have changed, although the plan does not change them
        self.left_out = 0
        self.doubled = 0  # turns of a conversation that comes from another reader

    def apply(self, events: Sequence[PreparedEvent]) -> None:
        self._apply_markers(events)
        for event in events:
            match event:
                case PreparedTurn():
                    self._apply_turn(event)
                case TitleEvent():
                    self._apply_title(event)
                case RewindEvent():
                    self._apply_rewind(event)
                case ExclusionEvent():
                    pass  # already handled by _apply_markers
        for talk in self.talks.values():
            if talk.exclusion_reason:
                for slot in self._list_slots(talk):
                    slot.said, slot.is_live = None, False

    def _apply_markers(self, events: Iterable[PreparedEvent]) -> None:
        """Exclude conversations with a marker, and the conversations of their agents."""
        for event in events:
            if isinstance(event, ExclusionEvent):
                conversation = build_conversation_id(self._source, event.session)
                session = TextCleaner(self._rules.masks).clean_name(event.session)
                talk = self._find_conversation(conversation) or self._create_conversation(conversation, session)
                sender = None
            elif isinstance(event, PreparedTurn):
                talk = self._get_conversation(event)
                sender = get_exclusion(self._known.conversations.get(event.parent or ""))
            else:
                continue
            if talk.is_permanently_excluded:
                continue
            if isinstance(event, ExclusionEvent) or event.is_marked or sender == "marker":
                talk.exclude("marker")
            elif sender == "forgotten":
                talk.exclude("forgotten")

    def _apply_turn(self, said: PreparedTurn) -> None:
        talk = self._get_conversation(said)
        last = self.checkpoint.previous
        previous = last if last is not None and last.conversation == talk.id else None
        slot = self.slots.get(said.id)
        project = self._find_project(said, talk, slot, previous)
        at = self._compute_time(said, talk, slot, previous)
        copied = None
        if slot is not None and slot.is_live:
            self._mark_seen(slot, talk)
        if tombstone := self._known.tombstones.get(said.id):
            self.left_out += 1
            copied = tombstone.session if tombstone.parent != talk.id else None
            self._link_continuation(talk, copied)
        elif not talk.is_permanently_excluded and self._is_off(said, project, at):
            self.left_out += 1
            self._drop_title(talk)
        elif self._is_excluded(talk, said, project) or self._is_before_start(at):
            self.left_out += 1
            if talk.is_permanently_excluded:
                self._exclude_turn(said, talk, slot, at)
        elif self._is_read_elsewhere(said, talk):
            self.doubled += 1
        elif slot is not None and slot.owner != talk.id:
            copied = slot.session
            self._link_continuation(talk, copied)
            self._extend_turn(slot, said, talk)
        else:
            self._add_turn(said, talk, slot, at, project)
            if previous is not None and previous.copied is not None:
                self._link_continuation(talk, previous.copied)
            self._guard_conversation(said.parent)
        if talk.is_permanently_excluded:
            self._drop_title(talk)
            latest = PreviousTurn(talk.id, at)
        else:
            kept = copied or (previous and not talk.is_kept and previous.copied) or None
            latest = PreviousTurn(talk.id, at, project, kept)
        self.checkpoint = replace(self.checkpoint, previous=latest)

    def _add_turn(
        self, said: PreparedTurn, talk: ConversationDraft, slot: TurnSlot | None, at: int, project: str | None
    ) -> None:
        if slot is None:
            slot = self.slots[said.id] = TurnSlot(talk.id, said.session, None, False, 0, at)
        if not talk.has_turns:
            self._begin_conversation(talk, said)
        if not slot.is_live:
            slot.position, slot.is_live = talk.assign_position(at), True
            slot.sequence = talk.assign_sequence()
            slot.tags = (slot.tags - self._find_older_tags(slot)) | {self.checkpoint.tag}
        elif said.is_whole and len(said.text) < len(slot.text) and slot.text.startswith(said.text):
            slot.catch_up(said)
            return  # an older state of the turn
        elif at != slot.at:
            talk.tags.add(UNSORTED_TAG)
        slot.said, slot.at, slot.scope = said, at, project or ""
        slot.set_growths()
        talk.add_turn(at, project, said.branch)
        if said.words:
            talk.set_default_title(said.words, slot.position)

    def _mark_seen(self, slot: TurnSlot, talk: ConversationDraft) -> None:
        """Record that the turn occurs in this reading, even if it is not stored.

        When a transcript is read again from the start, turns get the order of this reading.
        """
        if self.checkpoint.tag in slot.tags:
            return
        if self.checkpoint.reading and slot.owner == talk.id and not talk.exclusion_reason:
            slot.sequence = talk.assign_sequence()
        slot.tags = frozenset({*slot.tags.difference(self._find_older_tags(slot)), self.checkpoint.tag})

    def _find_older_tags(self, slot: TurnSlot) -> set[str]:
        """Return the tags from earlier readings of this transcript."""
        own = {tag for tag in slot.tags if parse_transcript_tag(tag) == self.checkpoint.id}
        return own - {self.checkpoint.tag}

    def _extend_turn(self, slot: TurnSlot, said: PreparedTurn, talk: ConversationDraft) -> None:
        """Extend a turn by a longer copy. A shorter copy may have been made, and read, before the turn was complete."""
        owner = self._known.conversations.get(slot.owner)
        is_kept = slot.is_live and owner is not None and not get_exclusion(owner)
        if is_kept and slot.is_prefix_of(said) and SEALED_TAG not in slot.tags:
            slot.grow(said, talk.id, self._known.code.get(said.id, ()))
            self._guard_conversation(slot.owner)

    def _exclude_turn(self, said: PreparedTurn, talk: ConversationDraft, slot: TurnSlot | None, at: int) -> None:
        """Prevent copies from restoring the turn, or from extending another conversation's turn with its text."""
        if slot is None:
            self.tombstones[said.id] = TurnSlot(talk.id, talk.session, None, False, 0, at)
        elif slot.owner != talk.id and slot.is_prefix_of(said):
            slot.tags |= {SEALED_TAG}

    def _begin_conversation(self, talk: ConversationDraft, said: PreparedTurn) -> None:
        if said.parent is not None:
            talk.facets["part_of"] = said.facets["part_of"]
        if said.reader is not None:
            talk.facets["reader"] = said.reader
        title = self.checkpoint.title
        if title is not None and title[0] == talk.id:
            talk.set_title(title[1])
            self.checkpoint = replace(self.checkpoint, title=None)

    def _link_continuation(self, talk: ConversationDraft, session: str | None) -> None:
        if talk.is_present and session and not talk.is_permanently_excluded:
            talk.is_kept = True
            talk.facets.setdefault("continues", session)

    def _is_read_elsewhere(self, said: PreparedTurn, talk: ConversationDraft) -> bool:
        """Return whether another reader owns the conversation. Two readers give a turn different keys."""
        return talk.has_turns and talk.facets.get("reader") != said.reader

    def _is_excluded(self, talk: ConversationDraft, said: PreparedTurn, project: str | None) -> bool:
        """Return whether the turn is in an excluded folder, or touched a file in one."""
        exclusion = self._rules.exclusion
        if talk.exclusion_reason == "excluded" and not exclusion.is_excluded(talk.scope):
            talk.include()
        if talk.is_permanently_excluded:
            return True
        folder = said.place or project or ""
        # A folder may be known only by its masked name.
        known = (talk.scope,) if talk.exclusion_reason else (folder, project or "")
        pattern = next(filter(None, map(exclusion.pattern_of, known)), None)
        if pattern is not None and not talk.has_turns and not talk.exclusion_reason:
            talk.exclude("excluded", scope=project or "")
            self._drop_title(talk)
        pattern = pattern or exclusion.find_pattern(said.files, folder)
        if pattern is None:
            return False
        excluded = tuple(sorted({*self.checkpoint.excluded, pattern}))
        self.checkpoint = replace(self.checkpoint, excluded=excluded)
        return True

    def _is_off(self, said: PreparedTurn, project: str | None, at: int) -> bool:
        """Return whether the project of the turn is off now, or was off when the turn was said."""
        off_folders, folder = self._rules.off_folders, said.place or project
        if not off_folders.silences:
            return False
        if off_folders.was_off(folder, at):
            if said.at is None and said.id not in self.slots:
                # The turn has no time. If the file changes later, the turn would get a time when the project was on.
                self.tombstones[said.id] = TurnSlot("", None, None, False, 0, at)
            return True
        off = off_folders.find_off_folder(folder)
        if off is None:
            return False
        # Said before the project was turned off. When the project is on again, the transcript is read again.
        self.checkpoint = replace(self.checkpoint, off=tuple(sorted({*self.checkpoint.off, off})))
        return True

    def _is_before_start(self, at: int) -> bool:
        since = self._rules.since
        if since is None or at >= since:
            return False
        latest = max(since, self.checkpoint.since or since)
        self.checkpoint = replace(self.checkpoint, since=latest)
        return True

    def _compute_time(
        self, said: PreparedTurn, talk: ConversationDraft, slot: TurnSlot | None, previous: PreviousTurn | None
    ) -> int:
        if said.at is not None:
            return said.at
        if slot is not None:
            return slot.at
        if tombstone := self._known.tombstones.get(said.id):
            return tombstone.effective_at
        if previous is not None and previous.at is not None:
            return previous.at
        return self._modified if talk.end_time is None else talk.end_time

    def _find_project(
        self, said: PreparedTurn, talk: ConversationDraft, slot: TurnSlot | None, previous: PreviousTurn | None
    ) -> str | None:
        if said.project is not None:
            return said.project
        if slot is not None and slot.owner == talk.id and slot.is_live:
            return slot.scope or None
        return (previous and previous.project) or talk.scope or None

    def _apply_title(self, event: TitleEvent) -> None:
        title = TextCleaner(self._rules.masks)(" ".join(event.title.split()), MAX_TITLE_CHARACTERS)
        conversation = build_conversation_id(self._source, event.session)
        talk = self._find_conversation(conversation)
        if not title or (talk is not None and talk.exclusion_reason) or self._is_last_turn_off(conversation):
            return
        if talk is not None and talk.is_present:
            talk.set_title(title)
        else:
            self.checkpoint = replace(self.checkpoint, title=(conversation, title))

    def _is_last_turn_off(self, conversation: str) -> bool:
        """Return whether the project was off at the last turn, because the title may reveal its content."""
        last, off_folders = self.checkpoint.previous, self._rules.off_folders
        if last is None or last.conversation != conversation or not off_folders.silences:
            return False
        return off_folders.find_off_folder(last.project) is not None or off_folders.was_off(last.project, last.at or 0)

    def _drop_title(self, talk: ConversationDraft) -> None:
        if self.checkpoint.title is not None and self.checkpoint.title[0] == talk.id:
            self.checkpoint = replace(self.checkpoint, title=None)

    def _apply_rewind(self, event: RewindEvent) -> None:
        """Remove turns by the order in which they came, because their times may be in any order."""
        talk = self._find_conversation(build_conversation_id(self._source, event.session))
        turn = build_turn_id(self._source, event.key)
        slot, tombstone = self.slots.get(turn), self._known.tombstones.get(turn)
        if talk is None or talk.exclusion_reason or not talk.is_present:
            return
        owner = slot.owner if slot is not None else tombstone and tombstone.parent
        if not owner:
            return
        start = 0  # a copied turn comes before all own turns
        if owner == talk.id:
            if slot is None or not slot.is_live or self._find_older_tags(slot):
                return  # already removed, or missing in this reading
            start = slot.sequence
        left = TurnTotals()
        for each in self._list_slots(talk):
            if each.is_live and each.sequence >= start:
                each.is_live, each.said = False, None
            elif each.is_live:
                left.add(each.at, each.sequence, each.scope, each.branch)
        talk.rewind(left)

    def _list_slots(self, talk: ConversationDraft) -> list[TurnSlot]:
        return [slot for slot in self.slots.values() if slot.owner == talk.id]

    def _get_conversation(self, said: PreparedTurn) -> ConversationDraft:
        talk = self._find_conversation(said.conversation)
        if talk is None:
            talk = self._create_conversation(said.conversation, said.session)
            if said.parent is not None:
                talk.tags.add(build_part_tag(said.parent))
        return talk

    def _create_conversation(self, conversation: str, session: str | None) -> ConversationDraft:
        talk = self.talks[conversation] = ConversationDraft(conversation, session)
        talk.facets["source"] = self._source
        return talk

    def _find_conversation(self, conversation: str) -> ConversationDraft | None:
        record = self._known.conversations.get(conversation)
        if conversation not in self.talks and record is not None:
            self.talks[conversation] = ConversationDraft.from_record(record)
        return self.talks.get(conversation)

    def _guard_conversation(self, conversation: str | None) -> None:
        if conversation is not None and conversation in self._known.conversations:
            self.guards[conversation] = self._known.conversations[conversation]


def collect_conversation_ids(events: Sequence[PreparedEvent], source: str) -> set[str]:
    found: set[str] = set()
    for event in events:
        if isinstance(event, PreparedTurn):
            found |= {event.conversation, *([event.parent] if event.parent else [])}
        else:
            found.add(build_conversation_id(source, event.session))
    return found


def collect_turn_ids(events: Sequence[PreparedEvent], source: str) -> set[str]:
    return {
        event.id if isinstance(event, PreparedTurn) else build_turn_id(source, event.key)
        for event in events
        if isinstance(event, PreparedTurn | RewindEvent)
    }


def collect_rewound_ids(events: Sequence[PreparedEvent], source: str) -> set[str]:
    """Return the ids of conversations of which all turns are needed."""
    return {build_conversation_id(source, event.session) for event in events if isinstance(event, RewindEvent)}


def collect_grown_ids(events: Sequence[PreparedEvent], turns: Mapping[str, Record]) -> set[str]:
    """Return the ids of turns that a longer copy may extend."""
    return {
        event.id
        for event in events
        if isinstance(event, PreparedTurn)
        and (turn := turns.get(event.id)) is not None
        and turn.parent != event.conversation
        and TurnSlot.from_record(turn).is_prefix_of(event)
    }
