"""Exchanges: a turn of the user, and the turns that answer it."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence

from everkept.core.ports import RecordStore
from everkept.core.records import Record, RecordFilter
from everkept.core.transcripts import USER
from everkept.families.history.model import DECISION, SUMMARY, TURN
from everkept.families.history.relevance import get_score_key
from everkept.language.lasting_statements import find_statements
from everkept.language.sentences import remove_blocks
from everkept.language.spellings import stem
from everkept.language.telling_words import FILLER_WORDS, has_telling_words, list_stems
from everkept.retrieval.excerpts import compute_coverage
from everkept.retrieval.profile import SearchHit
from everkept.values import Value, field, replace

MAX_ANSWERS = 4  # turns after a question that may answer it
MIN_TELLING_WORDS = 3  # of an answer to a request; a shorter one says less than the request
MIN_ANSWER_WORDS = 1  # of an answer to a question, such as "Redis"
MAX_FILLER_CHARACTERS = 80  # of an answer that may say nothing, such as "Ok, great"
_FILLER_STEMS = frozenset(map(stem, FILLER_WORDS))

_REQUEST_VERBS = (
    r"add|adjust|allow|analy[sz]e|apply|build|change|check|clean|compare|configure|connect|convert|create|debug|delete"
    r"|describe|design|document|draft|drop|enable|explain|export|extend|extract|find|fix|format|generate|give|handle"
    r"|implement|improve|inline|install|integrate|introduce|investigate|limit|list|log|look|make|merge|migrate|move"
    r"|optimi[sz]e|port|prevent|profile|provide|refactor|remove|rename|render|replace|restructure|review|revert|rewrite"
    r"|run|set|show|simplify|speed|split|store|suggest|summari[sz]e|support|switch|tell|test|try|update|upgrade|use"
    r"|validate|verify|wire|wrap|write"
)
_REQUEST = re.compile(
    rf"(?:^|[.!\n][^\S\n]*+)(?:(?:and|also|now|next|then|ok(?:ay)?|first|so|great|good|thanks|please)[, ]+){{0,3}}"
    rf"(?:(?:can|could|would|will) you(?: please)? |let(?:'s| us) |(?:we|i) (?:need|want)(?: you)? to |help me )?"
    rf"(?:{_REQUEST_VERBS})\b"
    rf"|\b(?:please|can you|could you|would you|help me)\b",
    re.IGNORECASE,
)


def is_asking(turn: Record) -> bool:
    """Return whether a turn of the user asks or requests something, so that another turn answers it.

    A turn that states a rule, a preference or a decision says something itself, whatever it asks besides.
    """
    if turn.kind != TURN or turn.author != USER or turn.type in (DECISION, SUMMARY):
        return False
    if any(find_statements(turn.text)):
        return False
    text = remove_blocks(turn.text)
    return "?" in text or _REQUEST.search(text.replace("’", "'")) is not None


class Exchanges(Value):
    """The answers to turns of the user, in order, by the id of the user's turn."""

    answers: Mapping[str, Sequence[Record]] = field(default_factory=dict[str, Sequence[Record]])

    def find_answer(
        self, turn: Record, query: str, types: Container[str | None] = (), least: int = MIN_TELLING_WORDS
    ) -> Record | None:
        """Return the turn that answers best: a decision, otherwise the one with most words of the query.

        `types` are the accepted types of turns. If it is empty, all are accepted. An answer needs `least` telling words
        unless it is a decision.
        """
        asked = list_stems(query)
        accepted = [each for each in self.answers.get(turn.id, ()) if not types or each.type in types]
        telling = [each for each in accepted if each.type == DECISION or _is_telling(each.text, least)]
        return max(telling, key=lambda each: _rate_answer(each, asked), default=None)


def _is_telling(text: str, least: int) -> bool:
    is_filler = len(text) <= MAX_FILLER_CHARACTERS and list_stems(text) <= _FILLER_STEMS
    return not is_filler and has_telling_words(text, least)


def _rate_answer(turn: Record, asked: frozenset[str]) -> tuple[bool, float, int]:
    return turn.type == DECISION, compute_coverage(asked, turn.text), len(turn.text)


async def read_exchanges(store: RecordStore, turns: Iterable[Record]) -> Exchanges:
    """Read the answers to the turns: what follows until the user speaks again, or the user's decision there."""
    asking = [turn for turn in turns if turn.author == USER and turn.session is not None and turn.position is not None]
    places = {
        (turn.session or "", (turn.position or 0) + step) for turn in asking for step in range(1, MAX_ANSWERS + 1)
    }
    if not places:
        return Exchanges()
    found = await store.scan(RecordFilter(kinds=(TURN,), places=tuple(sorted(places))))
    # Another program may use the same session id.
    by_place = {(turn.parent, turn.position): turn for turn in found}
    return Exchanges({turn.id: _list_answers(turn, by_place) for turn in asking})


def _list_answers(turn: Record, by_place: Mapping[tuple[str | None, int | None], Record]) -> list[Record]:
    answers: list[Record] = []
    for step in range(1, MAX_ANSWERS + 1):
        following = by_place.get((turn.parent, (turn.position or 0) + step))
        if following is None:
            break
        if following.author == USER:
            # The user chooses among what was offered: "let's go with the second one".
            return [*answers, following] if following.type == DECISION else answers
        answers.append(following)
    return answers


class LedHits(Value):
    """Hits of which each represents its exchange. `questions` are the user's turns, by the id of the answer."""

    hits: list[SearchHit]
    questions: Mapping[str, Record] = field(default_factory=dict[str, Record])


async def lead_with_answers(
    store: RecordStore, query: str, hits: Sequence[SearchHit], types: Container[str | None] = ()
) -> LedHits:
    """Replace questions and requests by the turns that answer them. Each turn stays once, with its best score.

    A decision gets the best score of its exchange.
    """
    asking = [hit.record for hit in hits if is_asking(hit.record)]
    exchanges = await read_exchanges(store, asking)
    questions: dict[str, Record] = {}
    for turn in asking:
        least = MIN_ANSWER_WORDS if "?" in turn.text else MIN_TELLING_WORDS
        if (answer := exchanges.find_answer(turn, query, types, least)) is not None:
            questions[answer.id] = turn
    answers = {turn.id: answer_id for answer_id, turn in questions.items()}
    records = {each.id: each for some in exchanges.answers.values() for each in some}
    scores = {hit.record.id: hit.score for hit in hits}
    best: dict[str, SearchHit] = {}
    for hit in hits:
        answer = answers.get(hit.record.id)
        led = hit if answer is None else replace(hit, record=records[answer])
        if answer is not None and led.record.type == DECISION:
            exchange = exchanges.answers[hit.record.id]
            led = replace(led, score=max(hit.score, *(scores.get(each.id, 0.0) for each in exchange)))
        known = best.get(led.record.id)
        if known is None:
            best[led.record.id] = led
        elif hit.score > known.score:
            best[led.record.id] = replace(known, score=hit.score)
    return LedHits(sorted(best.values(), key=get_score_key), questions)
