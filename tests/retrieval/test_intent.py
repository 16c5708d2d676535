"""What questions are taken for: a table of what people type."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.retrieval.intent import (
    MAX_MENTIONS,
    SEARCH_TYPES,
    SURE_CONFIDENCE,
    UNSURE_CONFIDENCE,
    PrimaryIntent,
    QuestionEntities,
    analyze_question,
    find_mentions,
)

FIND, RECALL, TRACE, STRUCTURE = ("find_code", "recall_discussion", "trace_dependencies", "understand_structure")

# Each question with its intent, and what of functions, files, concepts and times is in it.
QUESTIONS: list[tuple[str, PrimaryIntent, dict[str, list[str]]]] = [
    ("show me the function that parses dates", FIND, {"concepts": ["parses dates"]}),
    ("Show me the implementation of the retry logic", FIND, {"concepts": ["retry logic"]}),
    ("show me the class Cart", FIND, {"functions": ["Cart"]}),
    ("where is the code for login", FIND, {"concepts": ["login"]}),
    ("where is the logic for rate limiting?", FIND, {"concepts": ["rate limiting"]}),
    ("find the implementation of auth", FIND, {"concepts": ["auth"]}),
    ("find where we implemented caching", FIND, {"concepts": ["caching"]}),
    ("find how retries are implemented", FIND, {"concepts": ["retries"]}),
    ("grep for parse_query", FIND, {"functions": ["parse_query"]}),
    ('grep "connection refused"', FIND, {"concepts": ["connection refused"]}),
    ("where did we define MAX_RETRIES", FIND, {"functions": ["MAX_RETRIES"]}),
    ("where is `login` defined?", FIND, {"functions": ["login"]}),
    ("where is login defined", FIND, {"functions": ["login"]}),
    ("where is UserService implemented", FIND, {"functions": ["UserService"]}),
    ("which file has the migrations", FIND, {"concepts": ["migrations"]}),
    ("what file defines parse_config", FIND, {"functions": ["parse_config"]}),
    ("give me the regex for emails", FIND, {"concepts": ["regex", "emails"]}),
    ("find the function that validates tokens", FIND, {"concepts": ["validates tokens"]}),
    ("example of a pytest fixture", FIND, {"concepts": ["pytest fixture"]}),
    ("code for uploading to S3", FIND, {"concepts": ["uploading", "S3"]}),
    ("search the codebase for TODO handling", FIND, {"concepts": ["TODO handling"]}),
    ("where do we handle timeouts", FIND, {"concepts": ["timeouts"]}),
    ("locate handle_request", FIND, {"functions": ["handle_request"]}),
    ("parse_query", FIND, {"functions": ["parse_query"]}),
    ("`login()`", FIND, {"functions": ["login"]}),
    ("UserService", FIND, {"functions": ["UserService"]}),
    ("src/app/main.py", FIND, {"files": ["src/app/main.py"]}),
    ("login() in auth.py", FIND, {"functions": ["login"], "files": ["auth.py"]}),
    (
        "what did we decide about the database last week?",
        RECALL,
        {"concepts": ["database"], "time_references": ["last week"]},
    ),
    ("what did we discuss yesterday", RECALL, {"time_references": ["yesterday"]}),
    ("what did you say about caching in March", RECALL, {"concepts": ["caching"], "time_references": ["in March"]}),
    ("remember when we fixed the flaky test?", RECALL, {"concepts": ["flaky test"]}),
    ("our conversation about authentication", RECALL, {"concepts": ["authentication"]}),
    ("why did we choose Postgres over MySQL", RECALL, {"concepts": ["Postgres", "MySQL"]}),
    ("why do we use tabs", RECALL, {"concepts": ["tabs"]}),
    ("when did we switch to uv", RECALL, {"concepts": ["switch", "uv"]}),
    ("did we ever discuss websockets?", RECALL, {"concepts": ["websockets"]}),
    ("have we solved this before", RECALL, {}),
    (
        "how did we fix the memory leak two months ago",
        RECALL,
        {"concepts": ["memory leak"], "time_references": ["two months ago"]},
    ),
    ("last time we worked on the parser", RECALL, {"concepts": ["parser"]}),
    ("remind me what the plan was", RECALL, {"concepts": ["plan"]}),
    ("what was the decision on logging", RECALL, {"concepts": ["logging"]}),
    ("what was that trick we used for SQLite locking", RECALL, {"concepts": ["trick", "SQLite locking"]}),
    (
        "we discussed rate limits on 2026-03-02",
        RECALL,
        {"concepts": ["rate limits"], "time_references": ["2026-03-02"]},
    ),
    ("find conversations about deployment", RECALL, {"concepts": ["deployment"]}),
    ("show me the discussion where we decided on FTS5", RECALL, {"concepts": ["FTS5"]}),
    ("find where we discussed the implementation of auth", RECALL, {"concepts": ["implementation", "auth"]}),
    ("who decided to drop Windows support", RECALL, {"concepts": ["drop Windows support"]}),
    ("similar problem with CORS", RECALL, {"concepts": ["CORS"]}),
    ("what have we tried for the slow query", RECALL, {"concepts": ["slow query"]}),
    ("what did we decide about the architecture of the parser", RECALL, {}),
    ("what calls login?", TRACE, {"functions": ["login"]}),
    ("what calls login()", TRACE, {"functions": ["login"]}),
    ("who calls parse_query", TRACE, {"functions": ["parse_query"]}),
    ("what uses the Cart class", TRACE, {"functions": ["Cart"]}),
    ("what depends on utils.py", TRACE, {"files": ["utils.py"]}),
    ("callers of Cart.total", TRACE, {"functions": ["Cart.total"]}),
    ("usages of `getUserName`", TRACE, {"functions": ["getUserName"]}),
    ("what breaks if I change parse_query?", TRACE, {"functions": ["parse_query"]}),
    ("what would break if we rename UserService", TRACE, {"functions": ["UserService"]}),
    ("what is affected by changes to the schema", TRACE, {"functions": ["schema"]}),
    ("affected by changes to login", TRACE, {"functions": ["login"]}),
    ("dependency graph of the billing module", TRACE, {"functions": ["billing"]}),
    ("call graph for checkout", TRACE, {"functions": ["checkout"]}),
    ("where is login used?", TRACE, {"functions": ["login"]}),
    ("where is the token refresh logic called", TRACE, {"concepts": ["token refresh"]}),
    ("what does checkout call", TRACE, {"functions": ["checkout"]}),
    ("impact of removing the cache", TRACE, {"functions": ["cache"]}),
    ("what imports settings.py", TRACE, {"files": ["settings.py"]}),
    ("which functions call login", TRACE, {"functions": ["login"]}),
    ("subclasses of Family", TRACE, {"functions": ["Family"]}),
    ("trace handle_login", TRACE, {"functions": ["handle_login"]}),
    ("references to Session", TRACE, {"functions": ["Session"]}),
    ("blast radius of this migration", TRACE, {"concepts": ["migration"]}),
    ("what calls it", TRACE, {}),
    ("how does the importer work?", STRUCTURE, {"concepts": ["importer"]}),
    ("how do the parser and the lexer interact", STRUCTURE, {"concepts": ["parser", "lexer"]}),
    ("structure of the project", STRUCTURE, {"concepts": ["project"]}),
    ("architecture of the search engine", STRUCTURE, {"concepts": ["search engine"]}),
    ("walk me through the checkout flow", STRUCTURE, {"concepts": ["checkout flow"]}),
    ("explain how retries happen", STRUCTURE, {"concepts": ["retries"]}),
    ("how is the config organized", STRUCTURE, {"concepts": ["config"]}),
    ("what are the components of the pipeline", STRUCTURE, {"concepts": ["pipeline"]}),
    ("overview of the storage layer", STRUCTURE, {"concepts": ["storage layer"]}),
    ("relationship between Session and User", STRUCTURE, {"concepts": ["Session", "User"]}),
    ("auth flow", STRUCTURE, {"concepts": ["auth"]}),
]

UNCLEAR: list[tuple[str, dict[str, list[str]]]] = [
    ("postgres connection pooling", {"concepts": ["postgres connection pooling"]}),
    ("login", {"concepts": ["login"]}),
    ("TypeError in build.py", {"functions": ["TypeError"], "files": ["build.py"]}),
    ("what database does the app use", {"concepts": ["database", "app"]}),
    ("GitHub actions", {"concepts": ["GitHub actions"]}),
    ("データベースの設計", {"concepts": ["データベースの設計"]}),
    ("", {}),
    (" ?! ", {}),
]


def spoken_of(entities: QuestionEntities) -> dict[str, list[str]]:
    found = {
        "functions": entities.functions,
        "files": entities.files,
        "concepts": entities.concepts,
        "time_references": entities.time_references,
    }
    return {sort: list(names) for sort, names in found.items() if names}


@pytest.mark.parametrize(("question", "intent", "expected"), QUESTIONS, ids=lambda it: str(it)[:40])
def test_a_question_says_what_it_is_after(question: str, intent: PrimaryIntent, expected: dict[str, list[str]]) -> None:
    found = analyze_question(question)
    assert (found.primary_intent, found.confidence) == (intent, SURE_CONFIDENCE)
    assert found.search_types == SEARCH_TYPES[intent]
    said = spoken_of(found.entities)
    assert {sort: said.get(sort) for sort in expected} == expected
    if "functions" not in expected:
        assert found.entities.functions == ()


@pytest.mark.parametrize(("question", "expected"), UNCLEAR)
def test_a_question_of_no_known_form_is_about_what_was_said(question: str, expected: dict[str, list[str]]) -> None:
    found = analyze_question(question)
    assert (found.primary_intent, found.confidence) == (RECALL, UNSURE_CONFIDENCE)
    assert found.search_types == ("semantic",)
    assert spoken_of(found.entities) == expected


def test_of_two_forms_the_first_in_the_question_counts() -> None:
    assert analyze_question("how does login work and what calls it").primary_intent == STRUCTURE
    assert analyze_question("what calls login and how does it work").primary_intent == TRACE
    assert analyze_question("remember when we drew the dependency graph").primary_intent == RECALL


def test_case_and_quotes_of_another_sort_do_not_count() -> None:
    assert analyze_question("WHAT CALLS LOGIN?").entities.functions == ("LOGIN",)
    assert analyze_question("Where’s the code for login?").primary_intent == FIND


def test_every_intent_has_its_ways() -> None:
    assert SEARCH_TYPES == {
        FIND: ("semantic", "keyword"),
        RECALL: ("semantic",),
        TRACE: ("graph", "semantic"),
        STRUCTURE: ("graph", "semantic"),
    }


PIECES = [
    *("find", "what", "calls", "where is", "how does", "work", "implement", "if we change", "the"),
    *("a/b.py", "x_y()", "`", '"', "(", "::", "../", "last week", "in March", "class", "\n", "日本"),
]


@given(st.text(max_size=300) | st.lists(st.sampled_from(PIECES), max_size=60).map(" ".join))
def test_any_text_has_an_intent(text: str) -> None:
    found = analyze_question(text)
    assert found.search_types == SEARCH_TYPES[found.primary_intent]
    for name in (*found.entities.functions, *found.entities.files):
        assert name
        assert name in text.replace("’", "'")


@pytest.mark.parametrize("piece", ["find ", "a/", "a.", '"', "`", "(", "_", "aA", "a::", "if i ", " "])
@pytest.mark.timeout(60)
def test_a_long_text_is_read_no_further_than_a_question_goes(piece: str) -> None:
    long = piece * (10_000 // len(piece))
    assert analyze_question(long) == analyze_question(long[:2_000])


FUNCTIONS: list[tuple[str, list[str]]] = [
    ("login() fails", ["login"]),
    ("does save(user, force) lock?", ["save"]),
    ("parse_query and _private and __init__", ["parse_query", "_private", "__init__"]),
    ("MAX_RETRIES", ["MAX_RETRIES"]),
    ("getUserName", ["getUserName"]),
    ("UserService vs HTTPServer", ["UserService", "HTTPServer"]),
    ("Cart.total is slow", ["Cart.total"]),
    ("std::sort and Foo#bar", ["std::sort", "Foo#bar"]),
    ("self.cache", ["self.cache"]),
    ("the login function", ["login"]),
    ("class Cart", ["Cart"]),
    ("a function called save", ["save"]),
    ("`total` in `Cart`", ["total", "Cart"]),
    ("a pure function", []),
    ("deploy the server(s)", []),
    ("JavaScript on macOS with GitHub", []),
    ("the class hierarchy", []),
    ("e.g. this one", []),
]

FILES: list[tuple[str, list[str]]] = [
    ("see src/app/main.py", ["src/app/main.py"]),
    ("main.py and README.md", ["main.py", "README.md"]),
    ("./build.sh, ../x.toml", ["./build.sh", "../x.toml"]),
    ("~/notes/todo.txt", ["~/notes/todo.txt"]),
    ("C:\\Users\\me\\app.py crashes", ["C:\\Users\\me\\app.py"]),
    ("/etc/hosts", ["/etc/hosts"]),
    ("the Dockerfile and .env", ["Dockerfile", ".env"]),
    ("src/everkept/core", ["src/everkept/core"]),
    ("`pyproject.toml`", ["pyproject.toml"]),
    ("component.test.tsx", ["component.test.tsx"]),
    ("Node.js and/or TCP/IP", []),
    ("version 1.2.3", []),
    ("https://example.com/a/b.py", []),
]

CONCEPTS: list[tuple[str, list[str]]] = [
    ("the rate limiting middleware", ["rate limiting middleware"]),
    ("retries, timeouts and backoff", ["retries", "timeouts", "backoff"]),
    ('the "exactly once" import', ["exactly once", "import"]),
    ("C++ templates", ["C++ templates"]),
    ("`npm run build` hangs", ["npm run build", "hangs"]),
    ("user's session", ["user's session"]),
    ("one two-phase commit", ["two-phase commit"]),
    ("cache cache Cache", ["cache cache Cache"]),
    ("to be or not to be", []),
]


@pytest.mark.parametrize(("text", "expected"), FUNCTIONS)
def test_names_of_code_are_known_by_their_form(text: str, expected: list[str]) -> None:
    assert list(find_mentions(text).functions) == expected


@pytest.mark.parametrize(("text", "expected"), FILES)
def test_files_are_known_by_ending_or_path(text: str, expected: list[str]) -> None:
    assert list(find_mentions(text).files) == expected


@pytest.mark.parametrize(("text", "expected"), CONCEPTS)
def test_telling_words_are_concepts_in_phrases(text: str, expected: list[str]) -> None:
    assert list(find_mentions(text).concepts) == expected


def test_times_stand_as_they_were_said() -> None:
    found = find_mentions("between 2026-03-02 and last week we moved to Postgres in May")
    assert found.time_references == ("2026-03-02", "last week", "in May")
    assert found.concepts == ("moved", "Postgres")


def test_a_plain_word_can_be_a_name() -> None:
    found = find_mentions("what calls login", "login", (0, 10))
    assert (found.functions, found.concepts) == (("login",), ())


def test_words_that_ask_are_concepts_outside_of_the_form() -> None:
    assert find_mentions("callers of graph tree", None, (0, 10)).concepts == ("graph tree",)


def test_of_each_sort_there_are_only_some() -> None:
    many = " ".join(f"name_{number}()" for number in range(50))
    assert len(find_mentions(many).functions) == MAX_MENTIONS
