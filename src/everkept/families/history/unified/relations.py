"""How the code of past conversations belongs together, for the names of a question."""

from collections.abc import Sequence

from everkept.core.ports import RecordStore
from everkept.core.times import iso
from everkept.families.history.code.tracing import Relation, trace
from everkept.families.history.unified.answers import (
    CODE_PIECES,
    RELATION,
    UnifiedResult,
    Whereabouts,
)
from everkept.retrieval.intent import Entities

MOST_WORDS = 5  # of a question that names no code, that are tried as names of it
A_WORD = 0.8  # what a relation counts that a plain word has led to


async def relations(
    store: RecordStore, entities: Entities, limit: int, *, words_too: bool
) -> list[UnifiedResult]:
    """Who calls, defines, imports and extends what the question names, best first.

    With `words_too` ordinary words are tried where it names nothing.
    """
    names = (*entities.functions, *entities.files)
    tried = names or (_words(entities.concepts) if words_too else ())
    if not tried:
        return []
    traced = await trace(store, tried, limit=limit)
    return [_result(relation, 1.0 if names else A_WORD) for relation in traced.relations]


def _words(concepts: Sequence[str]) -> tuple[str, ...]:
    words = dict.fromkeys(word for concept in concepts for word in concept.split())
    return tuple(words)[:MOST_WORDS]


def _result(relation: Relation, factor: float) -> UnifiedResult:
    code = relation.code
    return UnifiedResult(
        id=code.id,
        type=RELATION,
        content=relation.sentence,
        relevance_score=round(min(factor * relation.score, 1.0), 3),
        search_type="graph",
        found_in=CODE_PIECES,
        context=Whereabouts(code.scope or None, iso(code.at), code.session),
        language=code.type,
        file=code.name,
    )
