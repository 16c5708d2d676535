"""Plan for consolidating a session: which memories belong together, and which summaries and patterns to store."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from everkept.core.ports import Background
from everkept.core.records import SESSION_SCOPE, Record
from everkept.families.memories.likeness import cluster_rows, compute_likeness, extract_stems, select_central_sentences
from everkept.families.memories.memory_identity import compute_memory_id, compute_text_key
from everkept.families.memories.model import AUTOMATIC, DEFAULT_IMPORTANCE, DERIVED_FROM, MAX_TAGS
from everkept.language.sentences import take_beginning
from everkept.language.telling_words import compute_rarities, list_dull_stems
from everkept.values import Value, field, replace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ReflectStrategy = Literal["summarize", "extract_patterns", "full"]
Vectors = Mapping[str, "NDArray[np.float32]"]
SuggestedScope = Literal["project", "user"]

DERIVED_FACET = "derived"  # value: "summary" or "pattern"
REFLECTED_AT_FACET = "reflected_at"  # facet of a pattern: time up to which memories were considered for it
PATTERN_TAG = "pattern"  # to find earlier patterns

MIN_TOPIC_LIKENESS = 0.38
MIN_THEME_LIKENESS = 0.45  # repeated on another day: closer than notes that only share a topic
MIN_PAIR_LIKENESS = 0.8  # two notes on one thing; different things reach 0.6
MIN_TOPIC_MEMORIES = 3  # two notes are as quick to read as their summary
MIN_THEME_MEMORIES = 3
MIN_PATTERN_SESSIONS = 2  # a theme of a single session is a topic, not a pattern
MIN_HABIT_SESSIONS = 3  # from then on it belongs to the user rather than the project

MAX_TEXT_CHARACTERS = 2_000  # read of each memory
MAX_CENTRAL_TEXTS = 200  # texts at the center of a topic, from which sentences are chosen

MAX_SENTENCES = 5
SUMMARY_CHARACTERS = 700
PATTERN_CHARACTERS = 240
PATTERN_PREFIX = "Recurring theme: "
MAX_IMPORTANCE = 0.9  # only a person can give more


class MemorySummary(Value):
    """One memory that stands for several. Its id depends only on its sources and text."""

    id: str
    text: str
    scope: str
    importance: float
    tags: tuple[str, ...]
    occurred_at: int
    members: tuple[Record, ...]


class MemoryPattern(Value):
    """Recurring theme. `known` is its earlier memory, and `members` are all memories about it now."""

    id: str
    text: str
    scope: str
    frequency: int
    sessions: int
    suggested_scope: SuggestedScope
    importance: float
    tags: tuple[str, ...]
    occurred_at: int
    members: tuple[Record, ...]
    known: Record | None = None

    @property
    def has_new_members(self) -> bool:
        """Return whether a member is missing in the known memory."""
        return self.known is None or not get_sources(self.known).issuperset(member.id for member in self.members)


class ReflectionPlan(Value):
    analyzed: int = 0
    summaries: tuple[MemorySummary, ...] = ()
    patterns: tuple[MemoryPattern, ...] = ()


class ReflectionInput(Value):
    """Memories from which a plan is built.

    `own` includes memories derived from the session before. `patterns` are the memories of earlier patterns, including
    forgotten ones, so that a forgotten theme does not come up again.
    """

    session: str
    own: Sequence[Record]
    others: Sequence[Record] = ()
    patterns: Sequence[Record] = ()
    vectors: Vectors = field(default_factory=dict[str, Any])
    background: Background | None = None  # of the model of the vectors


def build_plan(remembered: ReflectionInput, strategy: ReflectStrategy = "full") -> ReflectionPlan:
    """Build a plan that is the same for the same memories in any order.

    After the first summary, only a topic with a newer memory gets another one; the same applies to patterns. Memories
    left over stay so, even if vectors computed since then would group them.
    """
    own = _sort_by_time(record for record in remembered.own if not is_derived(record))
    summaries: list[MemorySummary] = []
    patterns: list[MemoryPattern] = []
    if strategy != "extract_patterns":
        sources = [record for record in own if _can_be_summarized(record)]
        for of_user in (False, True):
            fitting = [record for record in sources if (record.scope == "user") == of_user]
            summaries += _build_summaries(fitting, remembered)
    if strategy != "summarize":
        others = [record for record in remembered.others if not is_derived(record)]
        patterns = _find_patterns(own, others, remembered)
    once = {(compute_text_key(summary.text), summary.scope): summary for summary in summaries}
    return ReflectionPlan(len(own), tuple(once.values()), tuple(patterns))


def to_user_scope(planned: ReflectionPlan) -> ReflectionPlan:
    """Return the plan with scope user, because memories derived in a user's store belong to the user."""
    return replace(
        planned,
        summaries=tuple(replace(each, scope="user") for each in planned.summaries),
        patterns=tuple(replace(each, scope="user") for each in planned.patterns),
    )


def is_derived(record: Record) -> bool:
    return DERIVED_FACET in record.facets


def get_sources(record: Record) -> frozenset[str]:
    """Return the ids of the sources of a derived memory, whether they still exist or not."""
    return frozenset(cast(Sequence[str], record.facets.get(DERIVED_FROM, ())))


def get_session(record: Record) -> str | None:
    """Return the session of a memory, even if a promotion has removed it from the session."""
    promoted = cast(Mapping[str, Any], record.facets.get("promoted") or {})
    return record.session or promoted.get("session")


def _can_be_summarized(record: Record) -> bool:
    """Return True for events and session facts. Other facts, procedures and pinned memories stay separate."""
    facets = record.facets
    is_settled = "consolidated" in facets or "superseded_by" in facets or "pinned" in facets
    is_event = record.type in ("episodic", "working")
    return not is_settled and (is_event or (record.type == "semantic" and record.scope == SESSION_SCOPE))


def _find_last_derived(own: Sequence[Record], derived: str) -> int:
    """Return when a summary or a pattern was last derived from the session, or 0."""
    made = (record.created_at for record in own if record.facets.get(DERIVED_FACET) == derived)
    return max(made, default=0)


def _build_summaries(sources: Sequence[Record], remembered: ReflectionInput) -> list[MemorySummary]:
    since = _find_last_derived(remembered.own, "summary")

    def counts(topic: _MemoryTopic) -> bool:
        touched = max(max(member.created_at, member.updated_at) for member in topic.members)
        is_pair = len(topic.members) == 2 and topic.alike >= MIN_PAIR_LIKENESS
        return touched > since and (is_pair or len(topic.members) >= MIN_TOPIC_MEMORIES)

    topics = _find_topics(sources, remembered, MIN_TOPIC_LIKENESS, counts)
    return [made for made in map(_build_summary, topics) if not _is_echo(made)]


def _is_echo(summary: MemorySummary) -> bool:
    """Return whether all members are automatic, and one of them says it all, or all are about the same command."""
    if not all(member.facets.get(AUTOMATIC) for member in summary.members):
        return False
    commands = {_find_command(member.text) for member in summary.members}
    is_repeated = any(compute_text_key(member.text) == compute_text_key(summary.text) for member in summary.members)
    return is_repeated or (len(commands) == 1 and None not in commands)


def _find_command(text: str) -> str | None:
    """Return the command at the beginning of an automatic memory, which its hook puts between backticks."""
    _, mark, rest = text.partition("`")
    return rest.partition("`")[0] if mark and text.startswith("`") else None


def _build_summary(topic: "_MemoryTopic") -> MemorySummary:
    text = topic.summarize(MAX_SENTENCES, SUMMARY_CHARACTERS)
    return MemorySummary(
        id=_build_derived_id(text, topic.members),
        text=text,
        scope="user" if topic.members[0].scope == "user" else "project",
        importance=_compute_importance(topic.members),
        tags=_find_common_tags(topic.members),
        occurred_at=max(member.effective_at for member in topic.members),
        members=topic.members,
    )


def _find_patterns(own: Sequence[Record], others: Sequence[Record], remembered: ReflectionInput) -> list[MemoryPattern]:
    ours = {record.id for record in own}
    everything = {record.id: record for record in (*others, *own)}
    current = _sort_by_time(r for r in everything.values() if "superseded_by" not in r.facets)

    def recurs(topic: _MemoryTopic) -> bool:
        sessions = {get_session(member) for member in topic.members} - {None}
        return (
            len(topic.members) >= MIN_THEME_MEMORIES
            and len(sessions) >= MIN_PATTERN_SESSIONS
            and any(member.id in ours for member in topic.members)
        )

    themes = _find_topics(current, remembered, MIN_THEME_LIKENESS, recurs)
    made = (r for r in remembered.own if r.facets.get(DERIVED_FACET) == "pattern")
    earlier = _sort_by_time({record.id: record for record in (*made, *remembered.patterns)}.values())
    since = _find_last_derived(remembered.own, "pattern")
    found: list[MemoryPattern] = []
    for theme in themes:
        known = _find_earlier_pattern(theme.members, earlier)
        newest = max((m.created_at for m in theme.members if m.id in ours), default=0)
        if known is not None and known.deleted_at is None:
            found.append(_build_pattern(_update_theme(theme, known), remembered.session, known))
        elif known is None and newest > since:
            found.append(_build_pattern(theme, remembered.session))
    return found


def _update_theme(theme: "_MemoryTopic", known: Record) -> "_MemoryTopic":
    """Return the theme if it has new members since the last reflection, otherwise only its known members."""
    sources = get_sources(known)
    since = int(known.facets.get(REFLECTED_AT_FACET, known.created_at))
    has_grown = any(m.id not in sources and m.created_at > since for m in theme.members)
    return theme if has_grown else theme.select_members(lambda record: record.id in sources)


def _find_earlier_pattern(members: Sequence[Record], patterns: Sequence[Record]) -> Record | None:
    """Return the earlier pattern with the most shared sources, if at least half of its sources are members."""
    ids = {member.id for member in members}
    shared = {pattern.id: len(get_sources(pattern) & ids) for pattern in patterns}
    same = [p for p in patterns if shared[p.id] and 2 * shared[p.id] >= len(get_sources(p))]
    return max(same, key=lambda pattern: shared[pattern.id], default=None)


def _build_pattern(theme: "_MemoryTopic", session: str, known: Record | None = None) -> MemoryPattern:
    # Session memories of other sessions count, but are not quoted.
    quoted = theme.select_members(lambda r: r.scope != SESSION_SCOPE or r.session == session)
    text = known.text if known else PATTERN_PREFIX + quoted.summarize(1, PATTERN_CHARACTERS)
    sessions = {get_session(member) for member in theme.members} - {None}
    is_habit = len(sessions) >= MIN_HABIT_SESSIONS and not any(map(_is_project_specific, theme.members))
    is_users = all(member.scope == "user" for member in theme.members)
    return MemoryPattern(
        id=known.id if known else _build_derived_id(text, theme.members),
        text=text,
        scope="user" if is_users else "project",
        frequency=len(theme.members),
        sessions=len(sessions),
        suggested_scope="user" if is_habit or is_users else "project",
        importance=_compute_importance(theme.members),
        tags=(*(tag for tag in _find_common_tags(quoted.members) if tag != PATTERN_TAG), PATTERN_TAG),
        occurred_at=max(member.effective_at for member in theme.members),
        members=theme.members,
        known=known,
    )


def _is_project_specific(record: Record) -> bool:
    """Return whether the memory mentions a file or a folder, and so belongs to one project."""
    source = cast(Mapping[str, Any], record.facets.get("source") or {})
    return bool(source.get("file")) or any(map(_is_path, _clip_text(record.text).split()))


def _is_path(word: str) -> bool:
    word = word.strip("`'\"()[]<>,;:.!?")
    stem, dot, ending = word.rpartition(".")
    is_file = bool(dot) and stem[-1:].isalnum() and ending.isalpha() and 1 <= len(ending) <= 4
    return is_file or "\\" in word or word.startswith(("~/", "./", "/")) or word.count("/") > 1


class _MemoryTopic(Value):
    """Memories that belong together, each with a weight for how central it is."""

    members: tuple[Record, ...]
    weights: tuple[float, ...]
    alike: float
    rarity: Mapping[str, float]

    def summarize(self, sentences: int, length: int) -> str:
        by_weight = sorted(range(len(self.members)), key=lambda n: (-self.weights[n], n))
        central = sorted(by_weight[:MAX_CENTRAL_TEXTS])
        texts = [_clip_text(self.members[n].text, "…") for n in central]
        weights = [self.weights[n] for n in central]
        return select_central_sentences(texts, weights, self.rarity, most=sentences, length=length)

    def select_members(self, fits: Callable[[Record], bool]) -> "_MemoryTopic":
        kept = [number for number, member in enumerate(self.members) if fits(member)]
        return _MemoryTopic(
            tuple(self.members[number] for number in kept),
            tuple(self.weights[number] for number in kept),
            self.alike,
            self.rarity,
        )


def _find_topics(
    records: Sequence[Record], remembered: ReflectionInput, threshold: float, counts: Callable[[_MemoryTopic], bool]
) -> list[_MemoryTopic]:
    if len(records) < 2:
        return []
    words = [_extract_topic_words(record.text) for record in records]
    alike = compute_likeness(words, [remembered.vectors.get(record.id) for record in records], remembered.background)
    telling = compute_rarities(words)
    topics: list[_MemoryTopic] = []
    for rows in cluster_rows(alike, threshold):
        if len(rows) > 1:
            near = alike[rows][:, rows]
            # Mean similarity of each to the others, excluding itself.
            weights = (near.sum(axis=1) - near.diagonal()) / (len(rows) - 1)
            # Rounded, so that sums in another order choose the same sentence.
            rounded = tuple(round(float(weight), 4) for weight in weights)
            members = tuple(records[row] for row in rows)
            topics.append(_MemoryTopic(members, rounded, float(weights.mean()), telling))
    return [topic for topic in topics if counts(topic)]


def _extract_topic_words(text: str) -> list[str]:
    """Return the words without numbers, which texts share by chance."""
    words = extract_stems(_clip_text(text))
    return [word for word in words if not word.isdigit() and word not in list_dull_stems()]


def _clip_text(text: str, ellipsis: str = "") -> str:
    return text if len(text) <= MAX_TEXT_CHARACTERS else take_beginning(text, MAX_TEXT_CHARACTERS) + ellipsis


def _sort_by_time(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: (record.effective_at, record.id))


def _compute_importance(members: Sequence[Record]) -> float:
    given = (DEFAULT_IMPORTANCE if m.importance is None else m.importance for m in members)
    return min(max(given), MAX_IMPORTANCE)


def _find_common_tags(members: Sequence[Record]) -> tuple[str, ...]:
    """Return the tags of at least half of the members, leaving one tag free."""
    counts = Counter(tag for member in members for tag in member.tags)
    common = (tag for tag, count in counts.items() if 2 * count >= len(members))
    best = sorted(common, key=lambda tag: (-counts[tag], tag))[: MAX_TAGS - 1]
    return tuple(sorted(best))


def _build_derived_id(text: str, members: Sequence[Record]) -> str:
    """Return an id from the time of the newest member, the text and the ids of the members."""
    made_of = "\n".join((text, *sorted(member.id for member in members)))
    return compute_memory_id(max(member.created_at for member in members), made_of)
