"""Reading a conversation: what an id leads to, and a page of turns around it."""

import re
from collections.abc import Sequence

from everkept.core.answers import cursor_of, position_of
from everkept.core.ports import RecordStore
from everkept.core.records import Record, Where
from everkept.core.sessions import NAME
from everkept.core.times import iso
from everkept.errors import AmbiguousName, InvalidInput, NotFound
from everkept.families.history.model import CODE, CONVERSATION, SAID, TURN, conversation_id
from everkept.families.history.search_answers import CodeView, ConversationPage, TurnView
from everkept.families.history.search_results import turns_between
from everkept.values import Value, replace

LONGEST_IN_PAGE = 1_500  # characters of a turn among others
LONGEST_EDIT = 600  # of code that a tool wrote, beside its turn
LONGEST_ALONE = 16_000  # of one that is read by itself
SHOWN_TYPES = {SAID: "conversation"}  # the name that the searches give it
CLIPPED = "Clipped turns are whole in read_conversation with the turn's id and limit 1."
WHERE_IDS_ARE = "Results of recall_previous_discussions carry ids that can be read."
OF_A_PEER = (
    'It is a result of the peer "{0}": what the search has shown is all that can be read of it '
    "from here. Whoever runs that server can read it there, as {1}."
)
# Why nothing of a conversation is kept, and what can be done about it.
LEFT_OUT = {
    "marker": ("is marked not to be indexed", None),
    "forgotten": ("was forgotten", None),
    "excluded": (
        "is of an excluded folder",
        "`everkept history include FOLDER` takes it in again, with the next import.",
    ),
}

# Kinds of cursors: turns from a position on, turns up to one, a turn's text from a place on.
_FROM, _UP_TO, _TEXT = "from", "up to", "text"
_CHUNK = re.compile(r"(?P<session>.+)-chunk-(?P<number>\d{1,9})")  # as other servers name turns
_FOREIGN = re.compile(rf"({NAME}):((?:turn|code)_.+)")  # as results of other servers are named
_GAP = 50  # positions that are looked through at least, as turns that were taken back leave none


class Opened(Value):
    """What an id leads to; no turn where it is that of a whole conversation. Who names a `chunk`
    wants it alone."""

    conversation: Record
    turn: Record | None = None
    code: Record | None = None
    is_chunk: bool = False

    @property
    def session(self) -> str:
        return self.conversation.session or ""


async def opened(store: RecordStore, given: str) -> Opened:
    """By the id of a turn, of code or of a conversation, or by a program's own id of a session;
    with `-chunk-7` behind it, at that turn or the nearest."""
    name = given.strip()
    record = next(iter(await store.get([name])), None)
    if record is not None and record.kind == CONVERSATION:
        return Opened(_kept(record))
    if record is not None and record.kind in (TURN, CODE):
        return await _opened_around(store, record)
    found = await _by_session(store, name)
    chunk = _CHUNK.fullmatch(name)
    if found is None and chunk is not None:
        return await _opened_at(store, name, chunk["session"], int(chunk["number"]))
    if found is None:
        raise _unknown(name)
    return Opened(_kept(found))


async def read(store: RecordStore, opened: Opened, limit: int, cursor: str | None) -> "Reading":
    """The turns that are asked for: around the one that was opened, or where the cursor leads."""
    turn = opened.turn
    if cursor is not None:
        return await _led(store, opened, limit, cursor)
    if turn is None:
        return await _among(store, opened, await _forward(store, opened, 0, limit))
    if limit == 1:
        return await _alone(store, opened, turn, 0)
    return await _among(store, opened, await _around(store, opened, turn, limit))


class Reading(Value):
    """Turns in their order, and what leads on. Of one that is read alone, from which character."""

    turns: list[Record]
    code: list[Record]
    total: int
    previous_cursor: str | None
    next_cursor: str | None
    start: int = 0
    is_alone: bool = False


def page_of(opened: Opened, reading: Reading) -> ConversationPage:
    conversation = opened.conversation
    facets = conversation.facets
    views = [_view(turn, opened, reading) for turn in reading.turns]
    ended = facets.get("ended")
    models = dict.fromkeys(turn.facets.get("model") for turn in reading.turns)
    return ConversationPage(
        conversation_id=conversation.id,
        session_id=opened.session,
        title=conversation.name or "",
        project_path=conversation.scope,
        source=str(facets.get("source", "")),
        started=iso(conversation.at),
        total_turns=reading.total,
        turns=views,
        ended=iso(int(ended)) if ended else None,
        branch=facets.get("branch"),
        models=[str(model) for model in models if model] or None,
        continues=facets.get("continues"),
        part_of=facets.get("part_of"),
        previous_cursor=reading.previous_cursor,
        next_cursor=reading.next_cursor,
        note=CLIPPED if any(view.clipped for view in views) and not reading.is_alone else None,
    )


async def _led(store: RecordStore, opened: Opened, limit: int, cursor: str) -> Reading:
    """Where a cursor leads to, if it is one of this conversation or turn."""
    kind, name, place = position_of(cursor, str, str, int)
    turn = opened.turn
    if kind == _TEXT and turn is not None and name == turn.id and 0 <= place < len(turn.text):
        return await _alone(store, opened, turn, place)
    if kind not in (_FROM, _UP_TO) or name != opened.conversation.id:
        raise InvalidInput(
            "`cursor` is not one that this `id` was given: use next_cursor or previous_cursor of a"
            " page of the same `id`.",
            argument="cursor",
            value=cursor[:100],
        )
    go = _forward if kind == _FROM else _backward
    return await _among(store, opened, await go(store, opened, place, limit))


async def _opened_around(store: RecordStore, record: Record) -> Opened:
    code = record if record.kind == CODE else None
    turn = record if code is None else next(iter(await store.get([record.parent or ""])), None)
    above = await store.get([turn.parent or ""]) if turn is not None else []
    if turn is None or not above:
        raise _unknown(record.id)
    return Opened(above[0], turn, code)


async def _opened_at(store: RecordStore, name: str, session: str, position: int) -> Opened:
    found = await _by_session(store, session)
    if found is None:
        raise _unknown(name)
    whole = Opened(_kept(found))
    near = await _forward(store, whole, position, 1) or await _backward(store, whole, position, 1)
    return replace(whole, turn=next(iter(near), None), is_chunk=True)


async def _by_session(store: RecordStore, name: str) -> Record | None:
    """`program:session` tells apart what two programs call alike."""
    source, colon, session = name.partition(":")
    if colon:
        exact = await store.get([conversation_id(source, session)])
        if exact:
            return exact[0]
    found = await store.scan(Where(kinds=(CONVERSATION,), sessions=(name,)))
    if len(found) > 1:
        candidates = [
            {"use": f"{one.facets.get('source')}:{name}", "id": one.id, "title": one.name}
            for one in found
        ]
        raise AmbiguousName("conversation", name, candidates)
    return next(iter(found), None)


def _kept(conversation: Record) -> Record:
    reason = conversation.facets.get("left_out")
    if reason is None:
        return conversation
    why, hint = LEFT_OUT.get(str(reason), LEFT_OUT["forgotten"])
    raise NotFound(
        "conversation",
        conversation.id,
        hint=hint,
        message=f'Conversation "{conversation.id}" {why}: none of its turns are kept.',
    )


def _unknown(name: str) -> NotFound:
    foreign = _FOREIGN.fullmatch(name)
    hint = OF_A_PEER.format(*foreign.groups()) if foreign else WHERE_IDS_ARE
    return NotFound("conversation", name, hint=hint)


async def _around(store: RecordStore, opened: Opened, turn: Record, limit: int) -> list[Record]:
    """The turn with as many before as after it; more of one side where the other has few."""
    place = turn.position or 0
    half = (limit - 1) // 2
    before = await _backward(store, opened, place - 1, half)
    after = await _forward(store, opened, place, limit - len(before))
    missing = limit - len(before) - len(after)
    if missing and before:
        before = [
            *await _backward(store, opened, (before[0].position or 0) - 1, missing),
            *before,
        ]
    return [*before, *after]


async def _forward(store: RecordStore, opened: Opened, first: int, count: int) -> list[Record]:
    found: list[Record] = []
    end, step = _next_free(opened), count
    while len(found) < count and first < end:
        last = min(first + step, end) - 1
        found += await turns_between(store, opened.conversation.id, opened.session, first, last)
        first, step = last + 1, max(step, _GAP)
    return found[:count]


async def _backward(store: RecordStore, opened: Opened, last: int, count: int) -> list[Record]:
    found: list[Record] = []
    last, step = min(last, _next_free(opened) - 1), count
    while len(found) < count and last >= 0:
        first = max(last - step + 1, 0)
        earlier = await turns_between(store, opened.conversation.id, opened.session, first, last)
        found = [*earlier, *found]
        last, step = first - 1, max(step, _GAP)
    return found[-count:] if count else []


def _next_free(opened: Opened) -> int:
    """The position behind the last turn."""
    place = opened.turn.position or 0 if opened.turn is not None else 0
    return max(int(opened.conversation.facets.get("turns", 0)), place + 1)


async def _among(store: RecordStore, opened: Opened, turns: Sequence[Record]) -> Reading:
    first = (turns[0].position or 0) if turns else 0
    last = (turns[-1].position or 0) if turns else -1
    before = await _backward(store, opened, first - 1, 1)
    after = await _forward(store, opened, last + 1, 1) if turns else []
    conversation = opened.conversation.id
    return Reading(
        list(turns),
        await _code_of(store, turns),
        await store.how_many(Where(kinds=(TURN,), parents=(conversation,))),
        cursor_of(_UP_TO, conversation, first - 1) if before else None,
        cursor_of(_FROM, conversation, last + 1) if after else None,
    )


async def _alone(store: RecordStore, opened: Opened, turn: Record, start: int) -> Reading:
    """A part of one turn's text; behind its end the turns go on."""
    reading = await _among(store, opened, [turn])
    end = start + LONGEST_ALONE
    following = reading.next_cursor
    if end < len(turn.text):
        following = cursor_of(_TEXT, turn.id, end)
    return replace(reading, next_cursor=following, start=start, is_alone=True)


async def _code_of(store: RecordStore, turns: Sequence[Record]) -> list[Record]:
    if not turns:
        return []
    return await store.scan(Where(kinds=(CODE,), parents=tuple(turn.id for turn in turns)))


def _shown_code(piece: Record, turn: Record, asked: str | None, most: int) -> str | None:
    """Of what was asked for, and of what the text of the turn does not show."""
    if piece.id == asked:
        return piece.text[:most]
    return None if piece.text.strip() in turn.text else piece.text[:LONGEST_EDIT]


def _view(turn: Record, opened: Opened, reading: Reading) -> TurnView:
    most = LONGEST_ALONE if reading.is_alone else LONGEST_IN_PAGE
    shown = turn.text[reading.start : reading.start + most]
    asked = opened.code.id if opened.code is not None else None
    code = [
        CodeView(piece.id, piece.type, piece.name, _shown_code(piece, turn, asked, most))
        for piece in reading.code
        if piece.parent == turn.id
    ]
    return TurnView(
        id=turn.id,
        position=turn.position or 0,
        author=turn.author or "",
        timestamp=iso(turn.at),
        type=SHOWN_TYPES.get(turn.type or "", turn.type or ""),
        text=shown,
        files=[str(name) for name in turn.facets.get("files", ())] or None,
        tools=[str(name) for name in turn.facets.get("tools", ())] or None,
        code=code or None,
        clipped=max(len(turn.text) - reading.start - len(shown), 0) or None,
        is_asked=True if opened.turn is not None and turn.id == opened.turn.id else None,
    )
