"""Handler of UserPromptSubmit: an answer from earlier work, a suggestion to search, or nothing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from everkept.core.context_text import as_data, count_tokens, wrap_in_fence
from everkept.core.records import Record, RecordFilter
from everkept.core.secrets import mask_text
from everkept.core.text import clip_text, format_count
from everkept.core.times import format_ago
from everkept.errors import ProjectArchived
from everkept.families.history.model import CODE, CONVERSATION, DECISION, TURN
from everkept.hooks.events import HookAnswer, HookContext, HookEvent
from everkept.hooks.prompt_evidence import (
    MAX_EVIDENCE_CHARACTERS,
    NOTICE,
    SAME_ERROR_LIKENESS,
    TAG,
    EvidenceBlock,
    EvidenceQuery,
    EvidenceResult,
    PromptEvidence,
    build_evidence_block,
    compute_marks,
    compute_topic_marks,
    exclude_given,
    get_safe_text,
    is_same_topic,
    search_evidence,
)
from everkept.hooks.prompts import (
    MIN_DOMAIN_OVERLAP,
    MIN_ERROR_SIMILARITY,
    MIN_WORK_SIMILARITY,
    ParsedPrompt,
    PromptSignals,
    SuggestionReason,
    compute_complexity,
    find_reason,
    is_feature_request,
    is_how_to,
    parse_prompt,
)
from everkept.hooks.workspace import ProjectFolders, find_project, open_history, read_open_todos
from everkept.language.past_forms import OVERVIEW, PastIntent
from everkept.language.telling_words import TellingWord, is_common_word
from everkept.retrieval.excerpts import select_excerpt

if TYPE_CHECKING:
    from everkept.core.ports import RecordStore

OVERVIEW_MARK = "overview"  # in the ledger: one overview per session is enough
MAX_SCANNED_RECORDS = 40  # per query; some of them are filtered out later
MAX_CONVERSATIONS, MAX_DECISIONS, MAX_TODOS = 5, 4, 5
MAX_TITLE_CHARACTERS, MAX_LINE_CHARACTERS = 120, 300
DECISION_QUERY = "decided agreed settled chose decision"  # words that mark a decision


class OverviewLine(NamedTuple):
    """Line about one record, below a heading."""

    heading: str
    text: str
    record: Record


def build_overview(event: HookEvent, around: HookContext) -> HookAnswer | None:
    """Build an overview without records that the session was already given, as long as the limits allow."""
    given = around.ledger.read_given()
    if OVERVIEW_MARK in given:
        return None
    found: list[OverviewLine] = around.run(_read_recent(event, around))
    lines = [line for line in found if line.record.id not in given]
    while lines and not _is_within_limits(_fence_lines(lines), around.settings.prompt_token_budget):
        lines.pop()
    if not lines or OVERVIEW_MARK not in around.ledger.claim({OVERVIEW_MARK, *(line.record.id for line in lines)}):
        return None
    return HookAnswer(_fence_lines(lines))


async def _read_recent(event: HookEvent, around: HookContext) -> list[OverviewLine]:
    room, now = around.room, around.now
    if room is None:
        return []
    history = await open_history(room)
    talks = [] if history is None else await _read_conversations(history, event)
    lines = [
        OverviewLine("Most recent conversations in this project:", _format_title(talk, now), talk) for talk in talks
    ]
    if history is not None and talks:
        lines += await _read_turn_lines(history, talks, now)
    project = await find_project(event.folder, around.settings, room)
    if project is not None:
        try:
            _, store = await room.open(project.name)
        except ProjectArchived:
            return lines
        lines += await _read_todo_lines(store, event.session, now)
    return lines


async def _read_conversations(history: "RecordStore", event: HookEvent) -> list[Record]:
    scopes = ProjectFolders.from_folder(event.folder).select_scopes(await history.list_scopes(CONVERSATION))
    if not scopes:
        return []
    where = RecordFilter(kinds=(CONVERSATION,), scopes=scopes)
    found = await history.scan(where, order="newest", limit=MAX_SCANNED_RECORDS)
    others = [talk for talk in found if _is_relevant_conversation(talk) and talk.session != event.session]
    return sorted(others, key=_get_end_time, reverse=True)[:MAX_CONVERSATIONS]


def _is_relevant_conversation(talk: Record) -> bool:
    facets = talk.facets
    has_turns = facets.get("turns") and not facets.get("left_out")
    return bool(talk.name and talk.session and has_turns and not facets.get("part_of"))


def _get_end_time(talk: Record) -> int:
    return int(talk.facets.get("ended_at") or talk.effective_at)


def _format_title(talk: Record, now: int) -> str:
    return f"{format_ago(_get_end_time(talk), now)}: {_format_line(talk.name or '', MAX_TITLE_CHARACTERS)}"


async def _read_turn_lines(history: "RecordStore", talks: Sequence[Record], now: int) -> list[OverviewLine]:
    """Return lines for the end of the newest conversation and for the decisions in all of them."""
    newest = RecordFilter(kinds=(TURN,), sessions=(talks[0].session or "",))
    turns = await history.scan(newest, order="newest", limit=MAX_SCANNED_RECORDS)
    last = max(turns, key=lambda turn: turn.position or 0, default=None)
    lines: list[OverviewLine] = []
    if last is not None:
        end = get_safe_text(last).strip()[-MAX_LINE_CHARACTERS:]
        lines.append(
            OverviewLine("The most recent one ended with:", f"{_format_speaker(last)}: {_format_line(end)}", last)
        )
    sessions = tuple(talk.session for talk in talks if talk.session)
    decided = RecordFilter(kinds=(TURN,), types=(DECISION,), sessions=sessions)
    for turn in await history.scan(decided, order="newest", limit=MAX_DECISIONS):
        part = select_excerpt(get_safe_text(turn), DECISION_QUERY, MAX_LINE_CHARACTERS).text
        text = f"{format_ago(turn.effective_at, now)}, {_format_speaker(turn)}: {_format_line(part)}"
        lines.append(OverviewLine("Decisions in these conversations:", text, turn))
    return lines


async def _read_todo_lines(store: "RecordStore", session: str, now: int) -> list[OverviewLine]:
    todos = [
        todo
        for todo in await read_open_todos(store, session)
        if not (todo.facets.get("superseded_by") or todo.facets.get("merged_into"))
    ]
    return [
        OverviewLine("Open todos:", f"{format_ago(todo.effective_at, now)}: {_format_line(get_safe_text(todo))}", todo)
        for todo in todos[:MAX_TODOS]
    ]


def _format_speaker(turn: Record) -> str:
    return f"the {turn.author}" if turn.author in ("user", "assistant") else "someone"


def _format_line(text: str, longest: int = MAX_LINE_CHARACTERS) -> str:
    return clip_text(as_data(mask_text(text)[0]), longest)


def _fence_lines(lines: Sequence[OverviewLine]) -> str:
    told: list[str] = []
    for heading in dict.fromkeys(line.heading for line in lines):
        told += [heading, *(f"- {line.text}" for line in lines if line.heading == heading)]
    return wrap_in_fence("\n".join(told) + "\n", NOTICE, TAG)


def _is_within_limits(text: str, budget: int) -> bool:
    return len(text) <= MAX_EVIDENCE_CHARACTERS and count_tokens(text) <= budget


CONFIDENT_SHARE = 0.6  # minimum share of the words if the prompt asks for the past or hints at it
UNREQUESTED_LIKENESS = 0.8  # minimum likeness if the prompt does neither
SUGGESTION_SHARE = 0.4  # minimum share of the words for a record to be worth a search

MIN_SHARED_WORDS = 2  # of the record and the prompt
MIN_KNOWN_WORDS = 2  # content words of a prompt that the past must contain for a search to be worth it
MAX_SHOWN_RECORDS = 4
MAX_UNREQUESTED_RECORDS = 2
KIND_BONUS = 0.2  # for a record of the requested kind

_KINDS_BY_REQUEST: dict[PastIntent, tuple[str, ...]] = {
    "implementation": (CODE, TURN),
    "memory": (TURN,),
    "last work": (TURN, CODE),
    "discussion": (TURN,),
    "overview": (TURN,),
}


class ShownEvidence(NamedTuple):
    """Evidence to show, best first; `briefly` if the user did not ask for it."""

    finds: tuple[PromptEvidence, ...]
    briefly: bool = False


class SearchSuggestion(NamedTuple):
    """Suggestion to search; `reason` is None if the prompt itself asks for the past."""

    reason: SuggestionReason | None
    finds: tuple[PromptEvidence, ...]


def build_evidence_query(reading: ParsedPrompt) -> EvidenceQuery:
    if reading.trigger is None:
        return EvidenceQuery(
            reading.words, error=reading.error, error_lines=reading.error_lines, is_foreign=reading.is_foreign
        )
    return EvidenceQuery(
        reading.words,
        reading.around,
        kinds=_KINDS_BY_REQUEST[reading.trigger.wanted],
        everywhere=not all(map(is_common_word, reading.words)),
        is_foreign=reading.is_foreign,
    )


def choose_answer(reading: ParsedPrompt, found: EvidenceResult) -> ShownEvidence | SearchSuggestion | None:
    """Choose what to answer. Most prompts get None."""
    if reading.trigger is not None:
        return _choose_triggered(reading.trigger.wanted, found)
    if reading.has_indicator and (sure := _select_confident(found, CONFIDENT_SHARE, MIN_SHARED_WORDS)):
        return ShownEvidence(sure[:MAX_SHOWN_RECORDS])
    same = tuple(
        find
        for find in found.finds
        if find.likeness >= UNREQUESTED_LIKENESS or find.error_likeness >= SAME_ERROR_LIKENESS
    )
    if same:
        return ShownEvidence(same[:MAX_UNREQUESTED_RECORDS], briefly=True)
    like = tuple(find for find in found.finds if find.error_likeness > MIN_ERROR_SIMILARITY)
    some = like or _select_confident(found, SUGGESTION_SHARE, MIN_SHARED_WORDS)
    reason = find_reason(compute_signals(reading, found)) if some else None
    return SearchSuggestion(reason, _select_reasons(reason, some)) if reason else None


def _select_reasons(reason: SuggestionReason, finds: Sequence[PromptEvidence]) -> tuple[PromptEvidence, ...]:
    """Return the records that are the reason for a suggestion, so that it counts no others."""
    if reason == "similar work":
        return tuple(find for find in finds if find.likeness > MIN_WORK_SIMILARITY)
    if reason == "similar error":
        return tuple(find for find in finds if find.error_likeness > MIN_ERROR_SIMILARITY)
    return tuple(finds)


def compute_signals(reading: ParsedPrompt, found: EvidenceResult) -> PromptSignals:
    """Measure the prompt. A number that only counts together with another signal is 0 without it."""
    asking_how_to = is_how_to(reading.prompt)
    return PromptSignals(
        similarity_to_past=found.likeness,
        asking_how_to=asking_how_to,
        complexity=compute_complexity(reading.prompt) if asking_how_to else 0.0,
        debugging=reading.is_debugging,
        error_similarity=found.error_likeness,
        new_feature=found.overlap > MIN_DOMAIN_OVERLAP and is_feature_request(reading.prompt),
        domain_overlap=found.overlap,
    )


def _choose_triggered(wanted: PastIntent, found: EvidenceResult) -> ShownEvidence | SearchSuggestion | None:
    sure = _select_confident(found, CONFIDENT_SHARE, 1)
    # In another project, a single word may mean anything.
    if shown := [find for find in sure if not find.is_elsewhere or find.shared >= MIN_SHARED_WORDS]:
        return ShownEvidence(tuple(_rank(shown, wanted))[:MAX_SHOWN_RECORDS])
    # Earlier work may have used other words, which a search also finds.
    telling = [word for word in found.known if not is_common_word(word)]
    if len(telling) < MIN_KNOWN_WORDS:
        return None
    own = tuple(find for find in found.finds if find.words and not find.is_elsewhere)
    return SearchSuggestion(None, tuple(find for find in own if find.share >= SUGGESTION_SHARE) or own)


def _select_confident(found: EvidenceResult, share: float, shared: int) -> tuple[PromptEvidence, ...]:
    return tuple(find for find in found.finds if find.share >= share and find.shared >= shared)


def _rank(finds: Sequence[PromptEvidence], wanted: PastIntent) -> list[PromptEvidence]:
    if wanted == "last work":
        return sorted(finds, key=lambda find: -find.record.effective_at)

    def has_wanted_kind(find: PromptEvidence) -> bool:
        if wanted == "implementation":
            return find.record.kind == CODE or "```" in find.record.text
        return find.is_memory if wanted == "memory" else find.record.kind == TURN

    return sorted(finds, key=lambda find: -(find.share + KIND_BONUS * has_wanted_kind(find)))


MAX_QUERY_WORDS = 8  # of the suggested query

_REASON_TEXTS: dict[SuggestionReason | None, str] = {
    "similar work": "Earlier work is similar to this prompt",
    "how to": "The prompt asks how to do something, and earlier work is about it",
    "similar error": "A similar error came up before",
    "related feature": "The prompt asks for something new, and earlier work is on the same subject",
    None: "The prompt asks about earlier work",
}


def format_suggestion(reason: SuggestionReason | None, finds: Sequence[PromptEvidence], query: str, now: int) -> str:
    """Return the suggestion for the assistant. It contains no stored text."""
    told = _REASON_TEXTS[reason]
    if finds:
        newest = max(find.record.effective_at for find in finds)
        told += f" ({format_count(len(finds), 'record')}, the newest {format_ago(newest, now)})"
    tool, argument = _select_tool(reason, finds)
    return f'Everkept: {told}. If it would help, call {tool} with {argument} "{query}".'


def format_query(words: Sequence[TellingWord]) -> str:
    return " ".join(word.text for word in words[:MAX_QUERY_WORDS])


def is_within_budget(text: str, budget: int) -> bool:

    if len(text.encode("utf-8")) <= budget:  # a token is at least one byte
        return True
    return count_tokens(text) <= budget


def _select_tool(reason: SuggestionReason | None, finds: Sequence[PromptEvidence]) -> tuple[str, str]:
    """Return the tool that finds these records, and its argument. Searches of conversations do not find memories."""
    if finds and all(find.is_memory for find in finds):
        return "recall_memories", "query"
    if reason == "similar error":
        return "find_similar_problems", "problem_description"
    if any(find.is_memory for find in finds):
        return "recall_memories or recall_previous_discussions", "query"
    return "recall_previous_discussions", "query"


def handle_user_prompt(event: HookEvent, around: HookContext) -> HookAnswer | None:
    """Answer a prompt. Most prompts need no answer and end here before anything is opened."""
    reading = parse_prompt(event.prompt)
    if reading is None or around.room is None:
        return None
    if reading.trigger is not None and reading.trigger.wanted == OVERVIEW:
        return build_overview(event, around)

    found: EvidenceResult = around.run(
        search_evidence(around.room, event, around.settings, build_evidence_query(reading))
    )
    decision = choose_answer(reading, found)
    if decision is None:
        return None
    if isinstance(decision, ShownEvidence):
        text = _show_evidence(decision, reading, found, around)
    else:
        text = _suggest_search(decision, reading, found, around)
    return HookAnswer(text) if text else None


def _show_evidence(
    decision: ShownEvidence, reading: ParsedPrompt, found: EvidenceResult, around: HookContext
) -> str | None:

    fresh = exclude_given(decision.finds, around.ledger.read_given())
    if not fresh:
        return None
    query = " ".join(spelling for word in reading.words for spelling in (word.text, *word.parts))

    def made(finds: Sequence[PromptEvidence]) -> EvidenceBlock | None:
        return build_evidence_block(
            finds, query, budget=around.settings.prompt_token_budget, now=around.now, briefly=decision.briefly
        )

    context = made(fresh)
    if context is None:
        return None
    marks = {mark for find in context.used for mark in compute_marks(find.record)}
    owned = around.ledger.claim(marks | compute_topic_marks(found.known))
    ours = [find for find in context.used if find.record.id in owned]
    if len(ours) < len(context.used):  # another hook of this session was faster
        context = made(ours)
    return context.text if context else None


def _suggest_search(
    decision: SearchSuggestion, reading: ParsedPrompt, found: EvidenceResult, around: HookContext
) -> str | None:

    given = around.ledger.read_given()
    fresh = exclude_given(decision.finds, given)
    words = found.known or reading.words
    marks = compute_topic_marks(words)
    # If the best record was given before, a search would only show it again.
    if decision.finds[:1] != tuple(fresh[:1]) or is_same_topic(marks, given):
        return None
    text = format_suggestion(decision.reason, fresh, format_query(words), around.now)
    if not is_within_budget(text, around.settings.prompt_token_budget):
        return None
    return text if around.ledger.claim(marks) else None
