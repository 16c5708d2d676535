import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.families.history.code_languages import detect_language, find_tag_file, normalize_language

TAGS = [
    ("py", "python"),
    ("Python3", "python"),
    ("python-repl", "python"),
    ("js", "javascript"),
    ("jsx", "javascript"),
    ("ts", "typescript"),
    ("tsx", "typescript"),
    ("sh", "shell"),
    ("bash", "shell"),
    ("zsh", "shell"),
    ("c++", "cpp"),
    ("h", "c"),
    ("C#", "csharp"),
    ("cs", "csharp"),
    ("golang", "go"),
    ("rs", "rust"),
    ("yml", "yaml"),
    ("patch", "diff"),
    ("plaintext", "text"),
    ("language-ruby", "ruby"),
    ("python:src/x.py", "python"),
    ("{.python}", "python"),
    ("{.haskell .numberLines startFrom=3}", "haskell"),
    ("{python}", "python"),
    ("js{1,3-5}", "javascript"),
    ('ts title="a.ts"', "typescript"),
    ("python linenos=true", "python"),
    ("12:34:app/models.rs", "rust"),
    ("src/server.go", "go"),
    ("Dockerfile", "dockerfile"),
    ("Makefile", "makefile"),
    ("gleam", "gleam"),
    ("https://example.org/a.py", None),
    ("==========", None),
    ("", None),
]


@pytest.mark.parametrize(("tag", "language"), TAGS)
def test_a_fence_says_its_language_in_many_ways(tag: str, language: str | None) -> None:
    assert detect_language(tag, None) == language


@pytest.mark.parametrize(
    ("file", "language"),
    [
        ("src/app/main.py", "python"),
        ("C:\\work\\Program.CS", "csharp"),
        ("web/App.tsx", "typescript"),
        ("lib/index.mjs", "javascript"),
        ("include/cart.hpp", "cpp"),
        ("Dockerfile.dev", "dockerfile"),
        ("deploy/Makefile", "makefile"),
        ("CMakeLists.txt", "cmake"),
        (".env.local", "dotenv"),
        ("go.mod", "go"),
        ("notes.txt", "text"),
        ("archive.tar.gz", None),
        ("LICENSE", None),
        ("bin/tool.node", None),
        ("", None),
    ],
)
def test_the_name_of_a_file_tells_its_language(file: str, language: str | None) -> None:
    assert detect_language(None, file) == language


def test_what_a_fence_says_comes_before_what_the_file_is_called() -> None:
    assert detect_language("diff", "src/x.py") == "diff"
    assert detect_language("unheard-of", "src/x.py") == "python"


@pytest.mark.parametrize(
    ("tag", "file"),
    [
        ("python:src/x.py", "src/x.py"),
        ('ts title="a.ts"', "a.ts"),
        ('ts title="my file.ts" {1}', "my file.ts"),
        ("js filename=src/a.js", "src/a.js"),
        ("{.python file=tools/run.py}", "tools/run.py"),
        ("12:34:app/models.rs", "app/models.rs"),
        ("python src/app.py", "src/app.py"),
        ("go // cmd/main.go", "cmd/main.go"),
        ("src/server.go", "src/server.go"),
        ("python", None),
        ("js{1,3}", None),
        ("python version 3.11", None),
        ("https://example.org/a.py", None),
        ("", None),
    ],
)
def test_a_fence_may_name_a_file(tag: str, file: str | None) -> None:
    assert find_tag_file(tag) == file


@pytest.mark.parametrize(
    ("typed", "language"),
    [
        ("Py", "python"),
        (" C++ ", "cpp"),
        ("js", "javascript"),
        (".ts", "typescript"),
        ("Objective C", "objective-c"),
        ("Visual Basic", "vb"),
        ("Common_Lisp", "lisp"),
        ("bash", "shell"),
        ("Gleam", "gleam"),
    ],
)
def test_a_filter_is_understood_as_people_type_it(typed: str, language: str) -> None:
    assert normalize_language(typed) == language


@given(st.text(), st.text())
def test_any_text_may_stand_where_a_language_or_a_file_is_named(tag: str, file: str) -> None:
    language = detect_language(tag, file)
    assert language is None or language == language.casefold() != ""
    assert find_tag_file(tag) != ""
    normalize_language(tag)


@given(st.sampled_from([tag for tag, language in TAGS if language]))
def test_a_language_is_its_own_name(tag: str) -> None:
    language = detect_language(tag, None)
    assert language is not None
    assert detect_language(language, None) == normalize_language(language) == language
