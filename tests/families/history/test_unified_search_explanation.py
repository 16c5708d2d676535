from collections.abc import Sequence
from datetime import UTC

import pytest

from everkept.core.answers import SearchType
from everkept.families.history.search_answers import ResultContext, UnifiedResult
from everkept.families.history.unified_conversations import ConversationResults, parse_period
from everkept.families.history.unified_search import SearchReport, format_explanation, list_suggestions
from everkept.retrieval.intent import analyze_question
from everkept.values import replace

NOW = 1_700_000_000_000_000


def course(
    question: str,
    *parts: str,
    recalled: ConversationResults | None = None,
    graph: bool = True,
    relations: Sequence[UnifiedResult] = (),
) -> SearchReport:
    intent = analyze_question(question)
    ways: list[SearchType] = [way for way in intent.search_types if graph or way != "graph"]
    recalled = recalled or ConversationResults([], "hybrid")
    return SearchReport(question, intent, ways, parts or ("history",), recalled, relations, UTC)


def result(kind: str, part: str, content: str = "text", **more: str) -> UnifiedResult:
    return UnifiedResult(
        id=more.pop("id", f"{kind}_1"),
        type=kind,
        content=content,
        relevance_score=0.9,
        search_type="semantic",
        found_in=part,
        context=ResultContext(more.pop("project", None)),
        title=more.pop("title", None),
        language=more.pop("language", None),
    )


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            course("what did we decide about caching"),
            "I understood this as a question about past conversations, and searched past conversations"
            " and their code, by meaning and words.",
        ),
        (
            course("caching", "history", "memories", "graph", "bank"),
            "I understood this as a question about past conversations (no other intent was recognized),"
            " and searched past conversations and their code, memories, the knowledge graph and the"
            " memory bank, by meaning and words.",
        ),
        (
            course("show me the function parse_query"),
            "I understood this as a search for code, and searched past conversations and their code, by"
            " meaning and words and for `parse_query` as typed.",
        ),
        (
            course("what calls login"),
            "I understood this as a question about dependencies, and searched past conversations"
            " and their code, by meaning and words and through relations.",
        ),
        (
            course("what calls login", graph=False),
            "I understood this as a question about dependencies, and searched past conversations"
            " and their code, by meaning and words.",
        ),
        (
            course("how does login work", recalled=ConversationResults([], "keyword")),
            "I understood this as a question about structure, and searched past"
            " conversations and their code, by words only and through relations.",
        ),
    ],
)
def test_an_answer_says_what_was_searched_how_and_what_the_question_was_taken_for(
    asked: SearchReport, sentence: str
) -> None:
    assert format_explanation(asked) == sentence


def test_where_nothing_could_be_searched_the_answer_says_so() -> None:
    intent = analyze_question("what calls login")
    asked = SearchReport("what calls login", intent, intent.search_types, (), None, (), UTC)
    assert format_explanation(asked).endswith("but nothing could be searched.")


def test_the_time_that_was_kept_to_is_told() -> None:
    question = "what did we decide on 2023-11-02"
    meant = parse_period(question, NOW, UTC)
    within = format_explanation(course(question, recalled=ConversationResults([], "hybrid", within=meant)))
    assert within.endswith('Only conversations on 2023-11-02 are included ("2023-11-02").')
    beyond = format_explanation(course(question, recalled=ConversationResults([], "hybrid", beyond=meant)))
    assert beyond.endswith('No conversation on 2023-11-02 ("2023-11-02") matches, so all times are included.')


@pytest.mark.parametrize(
    ("question", "text", "is_only_near"),
    [
        ("what did we say about Elixir", "Kafka for the events", True),
        ("what did we say about Elixir", "An elixir of life", False),
        ("what did we do", "Kafka for the events", False),  # no word of it tells anything
    ],
)
def test_an_answer_says_where_no_result_has_a_word_of_the_question(
    question: str, text: str, is_only_near: bool
) -> None:
    sentence = format_explanation(course(question), [result("conversation", "conversations", text)])
    assert sentence.endswith("only similar in meaning.") == is_only_near
    meant = parse_period("yesterday", NOW, UTC)
    of_a_time = course(question, recalled=ConversationResults([], "hybrid", within=meant))
    assert "similar in meaning" not in format_explanation(of_a_time, [result("decision", "conversations", text)])


def test_suggestions_follow_from_what_was_found() -> None:
    found = [
        result("conversation", "conversations", id="turn_1", project="/home/ann/shop"),
        result("decision", "conversations", id="turn_2", project="/home/ann/shop"),
        result("code", "code", id="code_1", language="go", project="/home/ann/blog"),
        result("memory", "memories"),
    ]
    assert list_suggestions(course("caching"), found) == [
        'read_conversation {"id": "turn_1"}: read around the best match.',
        'recall_previous_discussions {"query": "caching", "type": "decision"}: search only decisions.',
        'search_code_history {"query": "caching", "language": "go"}: search only code.',
        'recall_previous_discussions {"query": "caching", "project_filter": "/home/ann/shop"}:'
        " search only this project.",
    ]
    of_one_project = list_suggestions(course("caching"), found[:2])
    assert not any("project_filter" in suggestion for suggestion in of_one_project)


def test_what_other_families_found_is_suggested_with_their_tools() -> None:
    found = [
        result("memory", "memories"),
        result("entity", "graph", title="Billing"),
        result("section", "bank", id="techContext.md:12"),
    ]
    assert list_suggestions(course("caching"), found) == [
        'recall_memories {"query": "caching"}: search only memories.',
        'open_nodes {"names": ["Billing"]}: read the whole entity.',
        'read_memory_bank_file {"filename": "techContext.md"}: read the whole file.',
    ]


def test_what_fits_far_worse_than_the_best_suggests_nothing() -> None:
    found = [result("memory", "memories"), replace(result("conversation", "conversations"), relevance_score=0.2)]
    assert list_suggestions(course("caching"), found) == ['recall_memories {"query": "caching"}: search only memories.']


def test_relations_that_are_known_are_suggested_but_for_what_was_asked() -> None:
    known = [
        result("relation", "code", "`checkout` calls `login`"),
        result("relation", "code", "`login` is defined in auth.py"),
    ]

    def suggested(question: str) -> list[str]:
        return list_suggestions(course(question, relations=known), [])

    calls, defined = "What calls `login`?", "Where is `login` defined?"
    assert suggested("how does login() work") == [calls, defined]
    assert suggested("what calls login") == [defined]
    assert suggested("show me the function login") == [calls]
    assert suggested("how does logout() work") == []


def test_nothing_found_suggests_nothing() -> None:
    assert list_suggestions(course("caching"), []) == []
    empty = course("caching", recalled=ConversationResults([], "hybrid", is_empty=True))
    assert list_suggestions(empty, []) == ["everkept import history, on the command line: import past conversations."]


def test_a_question_that_is_too_long_is_not_repeated() -> None:
    found = [result("conversation", "conversations", project="/home/ann/shop")]
    assert len(list_suggestions(course("caching " * 100), found)) == 1
