"""Reader of a conversation: the target of an id, and a page of turns around it."""

import re
from collections.abc import Sequence

from everkept.core.answers import decode_cursor, encode_cursor
from everkept.core.ports import RecordStore
from everkept.core.records import Record, RecordFilter
from everkept.core.sessions import NAME_PATTERN
from everkept.core.times import format_iso
from everkept.errors import AmbiguousName, InvalidInput, NotFound
from everkept.families.history.model import CODE, CODE_PREFIX, CONVERSATION, ID_HEADS, SAID, TURN, build_conversation_id
from everkept.families.history.search_answers import RELATION_MARK, CodeView, ConversationPage, TurnView
from everkept.families.history.search_results import read_turns_between
from everkept.values import Value, replace

MAX_TURN_CHARACTERS = 1_500  # of a turn among others
MAX_EDIT_CHARACTERS = 600  # of code that a tool wrote, shown with its turn
MAX_SINGLE_TURN_CHARACTERS = 16_000  # of a turn that is read alone
TYPE_LABELS = {SAID: "conversation"}  # the name used in search results
CLIPPED_NOTE = "To read a clipped turn in full, call read_conversation with its id and limit 1."
UNKNOWN_ID_HINT = "Use an id from the results of recall_previous_discussions."
PEER_ID_HINT = 'Use the text in the search result. The conversation is on the peer "{0}", where its id is {1}.'
# Why a conversation is not stored, and what the reader can do.
EXCLUSION_REASONS = {
    "marker": ("contains a marker that excludes it", UNKNOWN_ID_HINT),
    "forgotten": ("was forgotten", UNKNOWN_ID_HINT),
    "excluded": (
        "belongs to an excluded folder",
        "To import it with the next import, run `everkept history include FOLDER`.",
    ),
}

# Kinds of cursors: turns from a position, turns up to a position, text of a turn from an offset.
_FORWARD_CURSOR, _BACKWARD_CURSOR, _TEXT_CURSOR = "from", "up to", "text"
_CHUNK_ID = re.compile(r"(?P<session>.+)-chunk-(?P<number>\d{1,9})")  # ids of turns in other servers
_PEER_ID = re.compile(rf"({NAME_PATTERN}):((?:turn|code)_.+)")  # ids of results from peers
_MIN_STEP_POSITIONS = 50  # minimum of positions per read, because removed turns leave gaps


class ConversationTarget(Value):
    """The target of an id. `turn` is None for a whole conversation, and `is_chunk` requests a single turn."""

    conversation: Record
    turn: Record | None = None
    code: Record | None = None
    is_chunk: bool = False

    @property
    def session(self) -> str:
        return self.conversation.session or ""


async def resolve_target(store: RecordStore, given: str) -> ConversationTarget:
    """Find a turn, code or conversation by id, or by session id. The suffix `-chunk-7` selects the nearest turn."""
    name = given.strip()
    if name.startswith(CODE_PREFIX):
        name = name.partition(RELATION_MARK)[0]
    record = next(iter(await store.get([name])), None)
    if record is not None and record.kind == CONVERSATION:
        return ConversationTarget(_require_stored(record))
    if record is not None and record.kind in (TURN, CODE):
        return await _resolve_record(store, record)
    found = await _find_by_session(store, name)
    chunk = _CHUNK_ID.fullmatch(name)
    if found is None and chunk is not None:
        return await _resolve_chunk(store, name, chunk["session"], int(chunk["number"]))
    if found is None and (whole := await find_whole_id(store, name)) is not None:
        return await resolve_target(store, whole)
    if found is None:
        raise _build_not_found(name)
    return ConversationTarget(_require_stored(found))


async def find_whole_id(
    store: RecordStore, prefix: str, kinds: Sequence[str] = (CONVERSATION, TURN, CODE)
) -> str | None:
    """Return the only id of a conversation, turn or code that begins so, or None. Raise AmbiguousId."""
    from everkept.core.short_ids import find_by_prefix, require_one_id

    heads = [head for kind, head in ID_HEADS.items() if kind in kinds]
    found = await find_by_prefix([store], prefix, heads, kinds)
    return require_one_id(CONVERSATION, prefix, [record for _, record in found if record.deleted_at is None])


async def read_turns(store: RecordStore, opened: ConversationTarget, limit: int, cursor: str | None) -> "TurnPage":
    """Read the requested turns: around the target, or at the cursor."""
    turn = opened.turn
    if cursor is not None:
        return await _read_cursor(store, opened, limit, cursor)
    if turn is None:
        return await _build_turn_page(store, opened, await _read_forward(store, opened, 0, limit))
    if limit == 1:
        return await _read_single_turn(store, opened, turn, 0)
    return await _build_turn_page(store, opened, await _read_around(store, opened, turn, limit))


class TurnPage(Value):
    """Turns in order, with cursors. `start` is an offset into the text of a single turn."""

    turns: list[Record]
    code: list[Record]
    total: int
    previous_cursor: str | None
    next_cursor: str | None
    start: int = 0
    is_alone: bool = False


def build_page(opened: ConversationTarget, reading: TurnPage) -> ConversationPage:
    conversation = opened.conversation
    facets = conversation.facets
    views = [_build_turn_view(turn, opened, reading) for turn in reading.turns]
    ended = facets.get("ended")
    models = dict.fromkeys(turn.facets.get("model") for turn in reading.turns)
    return ConversationPage(
        conversation_id=conversation.id,
        session_id=opened.session,
        title=conversation.name or "",
        project_path=conversation.scope,
        source=str(facets.get("source", "")),
        started=format_iso(conversation.effective_at),
        total_turns=reading.total,
        turns=views,
        ended=format_iso(int(ended)) if ended else None,
        branch=facets.get("branch"),
        models=[str(model) for model in models if model] or None,
        continues=facets.get("continues"),
        part_of=facets.get("part_of"),
        previous_cursor=reading.previous_cursor,
        next_cursor=reading.next_cursor,
        note=CLIPPED_NOTE if any(view.clipped for view in views) and not reading.is_alone else None,
    )


async def _read_cursor(store: RecordStore, opened: ConversationTarget, limit: int, cursor: str) -> TurnPage:
    """Read the page at a cursor. Raise InvalidInput if it belongs to another conversation or turn."""
    kind, name, place = decode_cursor(cursor, str, str, int)
    turn = opened.turn
    if kind == _TEXT_CURSOR and turn is not None and name == turn.id and 0 <= place < len(turn.text):
        return await _read_single_turn(store, opened, turn, place)
    if kind not in (_FORWARD_CURSOR, _BACKWARD_CURSOR) or name != opened.conversation.id:
        raise InvalidInput(
            "`cursor` does not belong to this `id`.",
            hint="Pass next_cursor or previous_cursor from a page of the same `id`.",
            argument="cursor",
            value=cursor[:100],
        )
    go = _read_forward if kind == _FORWARD_CURSOR else _read_backward
    return await _build_turn_page(store, opened, await go(store, opened, place, limit))


async def _resolve_record(store: RecordStore, record: Record) -> ConversationTarget:
    code = record if record.kind == CODE else None
    turn = record if code is None else next(iter(await store.get([record.parent or ""])), None)
    above = await store.get([turn.parent or ""]) if turn is not None else []
    if turn is None or not above:
        raise _build_not_found(record.id)
    return ConversationTarget(above[0], turn, code)


async def _resolve_chunk(store: RecordStore, name: str, session: str, position: int) -> ConversationTarget:
    found = await _find_by_session(store, session)
    if found is None:
        raise _build_not_found(name)
    whole = ConversationTarget(_require_stored(found))
    near = await _read_forward(store, whole, position, 1) or await _read_backward(store, whole, position, 1)
    return replace(whole, turn=next(iter(near), None), is_chunk=True)


async def _find_by_session(store: RecordStore, name: str) -> Record | None:
    """Find a conversation by its session. `program:session` distinguishes equal sessions of two programs."""
    source, colon, session = name.partition(":")
    if colon:
        exact = await store.get([build_conversation_id(source, session)])
        if exact:
            return exact[0]
    found = await store.scan(RecordFilter(kinds=(CONVERSATION,), sessions=(name,)))
    if len(found) > 1:
        candidates = [{"use": f"{one.facets.get('source')}:{name}", "id": one.id, "title": one.name} for one in found]
        raise AmbiguousName("conversation", name, candidates)
    return next(iter(found), None)


def _require_stored(conversation: Record) -> Record:
    reason = conversation.facets.get("left_out")
    if reason is None:
        return conversation
    why, hint = EXCLUSION_REASONS.get(str(reason), EXCLUSION_REASONS["forgotten"])
    raise NotFound(
        "conversation",
        conversation.id,
        hint=hint,
        message=f'Conversation "{conversation.id}" {why}. None of its turns are stored.',
    )


def _build_not_found(name: str) -> NotFound:
    foreign = _PEER_ID.fullmatch(name)
    hint = PEER_ID_HINT.format(*foreign.groups()) if foreign else UNKNOWN_ID_HINT
    return NotFound("conversation", name, hint=hint)


async def _read_around(store: RecordStore, opened: ConversationTarget, turn: Record, limit: int) -> list[Record]:
    """Read the turn with equally many before and after it, or more on one side if the other has few."""
    place = turn.position or 0
    half = (limit - 1) // 2
    before = await _read_backward(store, opened, place - 1, half)
    after = await _read_forward(store, opened, place, limit - len(before))
    missing = limit - len(before) - len(after)
    if missing and before:
        before = [*await _read_backward(store, opened, (before[0].position or 0) - 1, missing), *before]
    return [*before, *after]


async def _read_forward(store: RecordStore, opened: ConversationTarget, first: int, count: int) -> list[Record]:
    found: list[Record] = []
    end, step = _get_end_position(opened), count
    while len(found) < count and first < end:
        last = min(first + step, end) - 1
        found += await read_turns_between(store, opened.conversation.id, opened.session, first, last)
        first, step = last + 1, max(step, _MIN_STEP_POSITIONS)
    return found[:count]


async def _read_backward(store: RecordStore, opened: ConversationTarget, last: int, count: int) -> list[Record]:
    found: list[Record] = []
    last, step = min(last, _get_end_position(opened) - 1), count
    while len(found) < count and last >= 0:
        first = max(last - step + 1, 0)
        earlier = await read_turns_between(store, opened.conversation.id, opened.session, first, last)
        found = [*earlier, *found]
        last, step = first - 1, max(step, _MIN_STEP_POSITIONS)
    return found[-count:] if count else []


def _get_end_position(opened: ConversationTarget) -> int:
    """Return the position after the last turn."""
    place = opened.turn.position or 0 if opened.turn is not None else 0
    return max(int(opened.conversation.facets.get("turns", 0)), place + 1)


async def _build_turn_page(store: RecordStore, opened: ConversationTarget, turns: Sequence[Record]) -> TurnPage:
    first = (turns[0].position or 0) if turns else 0
    last = (turns[-1].position or 0) if turns else -1
    before = await _read_backward(store, opened, first - 1, 1)
    after = await _read_forward(store, opened, last + 1, 1) if turns else []
    conversation = opened.conversation.id
    of_turns = RecordFilter(kinds=(CODE,), parents=tuple(turn.id for turn in turns))
    return TurnPage(
        list(turns),
        await store.scan(of_turns) if turns else [],
        await store.count_records(RecordFilter(kinds=(TURN,), parents=(conversation,))),
        encode_cursor(_BACKWARD_CURSOR, conversation, first - 1) if before else None,
        encode_cursor(_FORWARD_CURSOR, conversation, last + 1) if after else None,
    )


async def _read_single_turn(store: RecordStore, opened: ConversationTarget, turn: Record, start: int) -> TurnPage:
    """Read a part of one turn's text. After its end, the cursor leads to the next turns."""
    reading = await _build_turn_page(store, opened, [turn])
    end = start + MAX_SINGLE_TURN_CHARACTERS
    following = reading.next_cursor
    if end < len(turn.text):
        following = encode_cursor(_TEXT_CURSOR, turn.id, end)
    return replace(reading, next_cursor=following, start=start, is_alone=True)


def _select_code_text(piece: Record, turn: Record, asked: str | None, most: int) -> str | None:
    """Return the text of the requested code, or of code that the turn's text does not contain."""
    if piece.id == asked:
        return piece.text[:most]
    return None if piece.text.strip() in turn.text else piece.text[:MAX_EDIT_CHARACTERS]


def _build_turn_view(turn: Record, opened: ConversationTarget, reading: TurnPage) -> TurnView:
    most = MAX_SINGLE_TURN_CHARACTERS if reading.is_alone else MAX_TURN_CHARACTERS
    shown = turn.text[reading.start : reading.start + most]
    asked = opened.code.id if opened.code is not None else None
    code = [
        CodeView(piece.id, piece.type, piece.name, _select_code_text(piece, turn, asked, most))
        for piece in reading.code
        if piece.parent == turn.id
    ]
    return TurnView(
        id=turn.id,
        position=turn.position or 0,
        author=turn.author or "",
        timestamp=format_iso(turn.effective_at),
        type=TYPE_LABELS.get(turn.type or "", turn.type or ""),
        text=shown,
        files=[str(name) for name in turn.facets.get("files", ())] or None,
        tools=[str(name) for name in turn.facets.get("tools", ())] or None,
        code=code or None,
        clipped=max(len(turn.text) - reading.start - len(shown), 0) or None,
        is_asked=True if opened.turn is not None and turn.id == opened.turn.id else None,
    )
