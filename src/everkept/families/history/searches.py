"""The three searches of past conversations, and their filters by time and project."""

import difflib
from calendar import monthrange
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Literal

from everkept.core.paths import (
    ends_with,
    is_absolute,
    is_whole,
    is_windows,
    is_within,
    split_exact,
    split_loose,
    starts_with,
    strip_root,
)
from everkept.core.ports import Embedder, RecordStore
from everkept.core.records import Record
from everkept.core.sessions import get_acting_account
from everkept.core.text import clip_text
from everkept.core.times import format_iso, parse_time, to_datetime, to_microseconds
from everkept.families.history.code_languages import normalize_language
from everkept.families.history.code_search import find_code, list_languages
from everkept.families.history.model import CODE, CONVERSATION, DECISION, SAID, SUMMARY, TURN
from everkept.families.history.relevance import (
    QueryContext,
    find_turns,
    find_words,
    is_decision_question,
    parse_query,
    prefer_decisions,
    sort_for_display,
    strip_decision_words,
)
from everkept.families.history.search_answers import (
    LOCAL_SOURCE,
    MemoryResult,
    MemorySearchResult,
    ResultPeriod,
    SearchStats,
)
from everkept.families.history.search_results import build_results, lead_with_answers, read_nearby_turns
from everkept.families.history.search_summary import (
    CODE_PIECES,
    DECISIONS,
    DISCUSSIONS,
    PROBLEMS,
    MatchExtent,
    ResultNoun,
    SummaryFacts,
    find_decision,
    find_topics,
    format_summary,
)
from everkept.families.history.similar_problems import build_problem_query, find_similar
from everkept.retrieval.profile import SearchNotice, SearchPage
from everkept.retrieval.search import find_language_notice
from everkept.tools.tool import ToolWarning
from everkept.values import Value, field, replace

TimeRangeName = Literal["today", "week", "month", "all"]

CLOCK_SKEW_MICROSECONDS = 60 * 1_000_000
MIN_LIKENESS = 0.5  # of two names, so that one may be a misspelling of the other


def compute_bounds(time_range: TimeRangeName, now: int, zone: tzinfo) -> tuple[int | None, int | None]:
    """Return the bounds of the range. Except for `all`, it ends now, plus a minute for clocks that differ."""
    start = compute_start(time_range, now, zone)
    return start, None if start is None else now + CLOCK_SKEW_MICROSECONDS


def compute_start(time_range: TimeRangeName, now: int, zone: tzinfo) -> int | None:
    """Return the first moment of the range: local midnight, seven days ago or a calendar month ago."""
    moment = to_datetime(now).astimezone(zone)
    match time_range:
        case "today":
            start = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        case "week":
            start = moment - timedelta(days=7)
        case "month":
            start = _subtract_month(moment)
        case "all":
            return None
    return to_microseconds(start)


def _subtract_month(moment: datetime) -> datetime:
    """Return the same day of the previous month, or its last day."""
    year, month = (moment.year, moment.month - 1) if moment.month > 1 else (moment.year - 1, 12)
    return moment.replace(year=year, month=month, day=min(moment.day, monthrange(year, month)[1]))


def match_projects(wanted: str, known: Iterable[str]) -> list[str]:
    """Return the folders that match a path or its last parts, and all folders below them."""
    folders = {folder: split_loose(folder) for folder in known if folder}
    asked = split_loose(wanted)
    if not asked:
        return []
    if is_whole(asked):
        return [folder for folder, parts in folders.items() if starts_with(parts, asked)]
    named = [parts for parts in folders.values() if ends_with(parts, asked)]
    if named:
        return [folder for folder, parts in folders.items() if any(starts_with(parts, above) for above in named)]
    count = len(asked)
    return [
        folder
        for folder, parts in folders.items()
        if any(parts[start : start + count] == asked for start in range(len(parts) - count + 1))
    ]


def get_folder_name(path: str) -> str:
    """Return the last part of a folder's path, which is the same on other machines."""
    return next(iter(split_loose(path)[-1:]), "")


def match_named_projects(wanted: str, known: Iterable[str]) -> list[str]:
    """Return the folders that a person names for removal, and all folders below them.

    The name is a full path or complete last parts. Case matters if the file system distinguishes it. `~` and `.` are
    not expanded.
    """
    name = wanted.strip()
    folders = [folder for folder in known if folder]
    named = [name] if is_absolute(name) else [f for f in folders if _ends_with(f, name)]
    return [folder for folder in folders if is_within(folder, named)]


def find_nearest_project(wanted: str, known: Sequence[str]) -> str | None:
    """Return the folder with the most similar name, or None if no name is similar."""
    asked = split_loose(wanted)
    last = asked[-1] if asked else ""

    def likeness(folder: str) -> float:
        parts = split_loose(folder)
        names = ((wanted.lower(), folder.lower()), (last, parts[-1] if parts else ""))
        return max(difflib.SequenceMatcher(None, *pair).ratio() for pair in names)

    best = max(filter(None, known), key=likeness, default=None)
    return best if best is not None and likeness(best) >= MIN_LIKENESS else None


def _ends_with(folder: str, name: str) -> bool:
    on_windows = is_windows(folder)
    return ends_with(split_exact(folder, as_windows=on_windows), strip_root(split_exact(name, as_windows=on_windows)))


SearchKind = Literal["all", "conversation", "code", "decision"]

NO_HISTORY_MESSAGE = "No conversations are imported yet. To import them, run `everkept import history`."
NO_ACCOUNT_HISTORY_MESSAGE = (
    "This account has no past conversations. Conversations on the server belong to its owner. Ask the owner about them."
)
MAX_LISTED_LANGUAGES = 10  # languages in a message
MIN_GOOD_SHARE = 0.5  # share of the best score from which a result counts for the topics
TIME_RANGE_PHRASES: dict[TimeRangeName, str] = {
    "today": " from today",
    "week": " from the last seven days",
    "month": " from the last month",
    "all": "",
}
RECORD_KINDS: dict[SearchKind, tuple[str, ...]] = {
    "all": (TURN, CODE),
    "conversation": (TURN,),
    "code": (CODE,),
    "decision": (TURN,),
}
TURN_TYPES: dict[SearchKind, tuple[str, ...]] = {
    "all": (),
    "conversation": (SAID, SUMMARY),
    "code": (),
    "decision": (DECISION,),
}
KIND_NOUNS: dict[SearchKind, ResultNoun] = {
    "all": DISCUSSIONS,
    "conversation": DISCUSSIONS,
    "code": CODE_PIECES,
    "decision": DECISIONS,
}


class HistoryAnswer(Value):
    """A page of results. The summary is built for each call, because it mentions relative times."""

    results: list[MemoryResult] = field(default_factory=list[MemoryResult])
    topics: list[str] = field(default_factory=list[str])
    warnings: tuple[ToolWarning, ...] = ()
    noun: ResultNoun = DISCUSSIONS
    lasting: bool = True  # False if another try may find more
    within: str = ""  # description of the filter
    extent: MatchExtent | None = None  # all local matches
    of_peers: Mapping[str, int] = field(default_factory=dict[str, int])  # number of other matches, by source
    is_mentioned: bool = False  # True if only a search of all conversations finds something

    @property
    def next_start(self) -> int | None:
        """Return the number of matches up to the end of this page, or None if there are no more."""
        if self.extent is None or self.of_peers:
            return None
        end = self.extent.first + len(self.results)
        return end if self.results and end < self.extent.total else None

    def to_result(
        self, query: str, now: int, *more: ToolWarning, is_all: bool = True, cursor: str | None = None
    ) -> MemorySearchResult:
        """Build the result. If `is_all` is False, an empty result is not called a new topic."""
        extent = self._measure_extent()
        summary = format_summary(
            query,
            [_build_facts(result, query) for result in self.results],
            self.topics,
            now,
            self.noun,
            self.within,
            extent=extent,
            is_all=is_all,
            is_mentioned=self.is_mentioned,
        )
        return MemorySearchResult(
            results=self.results,
            summary=summary,
            stats=self._build_stats(extent),
            topics=self.topics,
            next_cursor=cursor,
            warnings=[*self.warnings, *more] or None,
        )

    def _measure_extent(self) -> MatchExtent | None:
        """Return the extent of all matches, with those of peers on the page."""
        if not self.results:
            return None
        times = [parse_time(result.context.timestamp) for result in self.results]
        projects = {result.context.project_path for result in self.results if result.context.project_path}
        is_own = [result.source == LOCAL_SOURCE for result in self.results]
        own = self.extent or MatchExtent(sum(is_own), min(times), max(times), 0)
        return replace(
            own,
            total=own.total + sum(self.of_peers.values()),
            oldest=min(own.oldest, *times),
            newest=max(own.newest, *times),
            projects=max(own.projects, len(projects)),
        )

    def _build_stats(self, extent: MatchExtent | None) -> SearchStats:
        if extent is None:
            return SearchStats(0, {})
        own = extent.total - sum(self.of_peers.values())
        return SearchStats(
            extent.total,
            {**({LOCAL_SOURCE: own} if own else {}), **self.of_peers},
            ResultPeriod(format_iso(extent.oldest), format_iso(extent.newest)),
            extent.is_lower_bound or None,
        )


def _build_facts(result: MemoryResult, query: str) -> SummaryFacts:
    context, sought = result.context, parse_query(query)
    around = "\n".join(text for text in (result.file, context.said, context.before) if text)
    return SummaryFacts(
        result.relevance_score,
        parse_time(context.timestamp),
        context.project_path,
        has_words=bool(result.highlights or find_words(around, sought)),
        decision=find_decision(result.content) if result.type == "decision" else None,
    )


async def recall_discussions(
    store: RecordStore,
    query: str,
    kind: SearchKind,
    project: str | None,
    time_range: TimeRangeName,
    limit: int,
    asking: QueryContext,
    start: int = 0,
) -> HistoryAnswer:
    """Find turns and code. A question or request is represented by the turn that answers it."""
    scopes: Sequence[str] = ()
    if project is not None:
        known = [tally.scope for tally in await store.tally((CONVERSATION,))]
        scopes = match_projects(project, known)
        if not scopes:
            none = await _build_empty_answer(store, KIND_NOUNS[kind], _warn_unknown_project(project, known))
            return replace(none, within=_format_restriction(project, time_range))
    after, before = compute_bounds(time_range, asking.now, asking.zone)
    asked = strip_decision_words(query)
    questions: Mapping[str, Record] = {}
    if kind == "code":
        answer = await find_code(store, asked, asking, scopes=scopes, after=after, before=before)
    else:
        answer = await find_turns(
            store,
            asked,
            kinds=RECORD_KINDS[kind],
            types=TURN_TYPES[kind],
            scopes=scopes,
            after=after,
            before=before,
            asking=asking,
        )
        led = await lead_with_answers(store, asked, prefer_decisions(query, answer.hits), TURN_TYPES[kind])
        answer, questions = replace(answer, hits=led.hits), led.questions
    hits = sort_for_display(answer.hits[start : start + limit], _collect_decision_ids(query, answer))
    around = await read_nearby_turns(store, [hit.record for hit in hits])
    results = build_results(hits, asked, around, questions=questions)
    within = _format_restriction(project, time_range)
    return await _build_answer(store, asked, answer, results, KIND_NOUNS[kind], asking, start, within)


async def find_solved_problems(
    store: RecordStore, description: str, code: str | None, limit: int, asking: QueryContext, start: int = 0
) -> HistoryAnswer:
    """Find similar problems and features, with the turns that solved them."""
    answer = await find_similar(store, description, code, asking)
    hits = sort_for_display(answer.found.hits[start : start + limit], answer.resolutions)
    around = await read_nearby_turns(store, [hit.record for hit in hits])
    query = build_problem_query(description, code)
    results = build_results(hits, query, around, resolutions=answer.resolutions)
    return await _build_answer(store, description, answer.found, results, PROBLEMS, asking, start)


async def search_code(
    store: RecordStore,
    query: str,
    language: str | None,
    limit: int,
    asking: QueryContext,
    *,
    with_context: bool,
    start: int = 0,
) -> HistoryAnswer:
    """Find code by what it contains, and by what was said about it."""
    meant = normalize_language(language) if language is not None else None
    if language is not None:
        known = await list_languages(store)
        if meant not in known:
            none = await _build_empty_answer(store, CODE_PIECES, _warn_unknown_language(language, known))
            return replace(none, within=_format_language(language))
    answer = await find_code(store, query, asking, language=meant)
    hits = answer.hits[start : start + limit]
    around = await read_nearby_turns(store, [hit.record for hit in hits], beside=with_context)
    results = build_results(hits, query, around, with_context=with_context)
    return await _build_answer(store, query, answer, results, CODE_PIECES, asking, start, _format_language(language))


async def _build_answer(
    store: RecordStore,
    query: str,
    answer: SearchPage,
    results: list[MemoryResult],
    noun: ResultNoun,
    asking: QueryContext,
    start: int,
    within: str = "",
) -> HistoryAnswer:
    if not results and await is_empty(store):
        return HistoryAnswer(warnings=(ToolWarning("no_history", get_no_history_message()),), noun=noun, within=within)
    texts = [result.content for result in select_good(results) if result.type != "code"]
    return HistoryAnswer(
        results,
        await find_topics(store, texts, query),
        list_warnings(answer.notices, query, asking.embedder),
        noun,
        lasting=not answer.notices,
        within=within,
        extent=_measure_extent(answer, start),
        is_mentioned=not (results or within or noun == DISCUSSIONS)
        and bool((await find_turns(store, query, asking=asking)).hits),
    )


def list_warnings(notices: Sequence[SearchNotice], query: str, embedder: Embedder | None) -> tuple[ToolWarning, ...]:
    """Return the notices as warnings, with one if the model cannot understand the query."""
    language = find_language_notice(query, embedder)
    told = [*notices, language] if language else notices
    return tuple(ToolWarning(notice.code, notice.message) for notice in told)


def _measure_extent(answer: SearchPage, start: int) -> MatchExtent | None:
    records = [hit.record for hit in answer.hits]
    if not records:
        return None
    times = [record.effective_at for record in records]
    projects = {record.scope for record in records if record.scope}
    return MatchExtent(len(records), min(times), max(times), len(projects), start, answer.is_lower_bound)


def select_good(results: Sequence[MemoryResult]) -> list[MemoryResult]:
    best = max((result.relevance_score for result in results), default=0.0)
    return [result for result in results if result.relevance_score >= MIN_GOOD_SHARE * best]


def _collect_decision_ids(query: str, answer: SearchPage) -> set[str]:
    """Return the ids of decisions if the question asks for one, to show them first among equals."""
    if not is_decision_question(query):
        return set()
    return {hit.record.id for hit in answer.hits if hit.record.type == DECISION}


def _format_restriction(project: str | None, time_range: TimeRangeName) -> str:
    place = "" if project is None else f" in project `{clip_text(project)}`"
    return place + TIME_RANGE_PHRASES[time_range]


def _format_language(language: str | None) -> str:
    return "" if language is None else f" in {clip_text(language)}"


async def _build_empty_answer(store: RecordStore, noun: ResultNoun, reason: ToolWarning) -> HistoryAnswer:
    """Build the answer for a filter without matches. If the store is empty, say so instead."""
    if await is_empty(store):
        reason = ToolWarning("no_history", get_no_history_message())
    return HistoryAnswer(warnings=(reason,), noun=noun)


def get_no_history_message() -> str:
    """Return the message for the caller. Only the owner can run the import command."""
    return NO_HISTORY_MESSAGE if get_acting_account() is None else NO_ACCOUNT_HISTORY_MESSAGE


async def is_empty(store: RecordStore) -> bool:
    """Return whether no turns are stored, including hidden ones."""
    return not (await store.count_live()).get(TURN)


def _warn_unknown_project(project: str, known: Sequence[str]) -> ToolWarning:
    near = find_nearest_project(project, known)
    hint = f" Did you mean `{near}`?" if near else ""
    return ToolWarning("unknown_project", f"No conversations found for project `{clip_text(project)}`.{hint}")


def _warn_unknown_language(language: str, known: Sequence[str]) -> ToolWarning:
    listed = ", ".join(known[:MAX_LISTED_LANGUAGES])
    there = f" Available languages: {listed}." if listed else ""
    return ToolWarning("unknown_language", f"No code found in `{clip_text(language)}`.{there}")
