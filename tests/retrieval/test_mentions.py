import pytest

from everkept.retrieval.mentions import MOST, mentioned

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
    assert list(mentioned(text).functions) == expected


@pytest.mark.parametrize(("text", "expected"), FILES)
def test_files_are_known_by_ending_or_path(text: str, expected: list[str]) -> None:
    assert list(mentioned(text).files) == expected


@pytest.mark.parametrize(("text", "expected"), CONCEPTS)
def test_telling_words_are_concepts_in_phrases(text: str, expected: list[str]) -> None:
    assert list(mentioned(text).concepts) == expected


def test_times_stand_as_they_were_said() -> None:
    found = mentioned("between 2026-03-02 and last week we moved to Postgres in May")
    assert found.time_references == ("2026-03-02", "last week", "in May")
    assert found.concepts == ("moved", "Postgres")


def test_a_plain_word_can_be_a_name() -> None:
    found = mentioned("what calls login", "login", (0, 10))
    assert (found.functions, found.concepts) == (("login",), ())


def test_words_that_ask_are_concepts_outside_of_the_form() -> None:
    assert mentioned("callers of graph tree", None, (0, 10)).concepts == ("graph tree",)


def test_of_each_sort_there_are_only_some() -> None:
    many = " ".join(f"name_{number}()" for number in range(50))
    assert len(mentioned(many).functions) == MOST
