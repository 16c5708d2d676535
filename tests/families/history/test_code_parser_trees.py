import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from code_samples import SAMPLES
from everkept.families.history.code_languages import GRAMMARS
from everkept.families.history.code_outlines import CodeCall, outline_code
from everkept.families.history.code_parser import MAX_PIECE_CHARACTERS, parse_code

# A parser that recovers from errors takes minutes or gigabytes for these, if it is let.
ENDLESS = ["->", "*)", "+;", "(\n", "&;\n", "`${\n", "<a>\n", "=],func \n", "def f(\n", "~:a\n"]


def python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("language", sorted(GRAMMARS))
def test_every_grammar_understands_its_sample(language: str) -> None:
    reading = parse_code(SAMPLES[language].text, language)
    assert reading.found
    assert reading.errors == 0


@pytest.mark.parametrize("language", ["python", "javascript", "typescript", "go", "rust"])
@pytest.mark.parametrize("unit", ENDLESS)
def test_what_a_parser_would_take_for_ever_over_comes_to_an_end(language: str, unit: str) -> None:
    outline_code(unit * (40_000 // len(unit)), language)


def test_code_beside_something_else_is_still_found() -> None:
    code = "def total(items):\n    return add_up(items)\n"
    data = "=], func ;; )( a1 -> &&& zz ~~ %% b2\n" * (2 * MAX_PIECE_CHARACTERS // 30)
    made = outline_code(
        code * (MAX_PIECE_CHARACTERS // len(code)) + data + code * (MAX_PIECE_CHARACTERS // len(code)), "python"
    )
    assert [each.name for each in made.defines] == ["total"]
    assert CodeCall("add_up", "total") in made.calls


def test_a_long_file_is_read_to_its_end_with_its_classes() -> None:
    methods = "\n".join(f"    def m{n}(self):\n        return self.n{n}()\n" for n in range(180))
    notes = '    """' + "\n    some words about it" * (MAX_PIECE_CHARACTERS // 40) + '"""\n'
    text = f"import shop\n\nclass Long:\n{methods}{notes}{notes}\ndef last():\n    shop.final()\n"
    assert len(text) > 2 * MAX_PIECE_CHARACTERS
    made = outline_code(text, "python")
    names = [each.name for each in made.defines]
    assert names == ["Long", *(f"Long.m{n}" for n in range(180)), "last"]
    assert CodeCall("Long.n179", "Long.m179") in made.calls
    assert made.calls[-1] == CodeCall("shop.final", "last")


@pytest.mark.parametrize(
    ("language", "head", "method", "tail"),
    [
        ("javascript", "class Long {", "  m%d() { return this.n%d() }", "}\nfunction last() {}"),
        ("typescript", "class Long {", "  m%d(): X { return this.n%d() }", "}\nfunction last() {}"),
        ("java", "class Long {", "  int m%d() { return this.n%d(); }", "}\nclass last {}"),
        ("csharp", "class Long {", "  int m%d() { return this.n%d(); }", "}\nclass last {}"),
        ("cpp", "class Long {", "  int m%d() { return this->n%d(); }", "};\nclass last {};"),
        ("rust", "impl Long {", "  fn m%d(&self) { self.n%d() }", "}\nfn last() {}"),
    ],
)
def test_a_class_that_is_longer_than_a_piece_keeps_its_methods(
    language: str, head: str, method: str, tail: str
) -> None:
    filling = "  // " + "words " * 20
    methods = "\n".join(f"{filling}\n{method % (n, n)}" for n in range(150))
    made = outline_code(f"{head}\n{methods}\n{tail}\n", language)
    names = [each.name for each in made.defines if each.name != "Long"]
    assert names == [*(f"Long.m{n}" for n in range(150)), "last"]
    assert made.calls[-1] == CodeCall("Long.n149", "Long.m149")


def test_parsing_again_and_again_keeps_no_memory() -> None:
    text = SAMPLES["python"].text * 5
    outline_code(text, "python")
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(100):
            outline_code(text, "python")
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 30 * len(text)


def test_several_threads_do_not_read_each_others_text() -> None:
    languages = [*SAMPLES] * 20
    alone = {language: outline_code(SAMPLES[language].text, language) for language in SAMPLES}
    with ThreadPoolExecutor(4) as pool:
        made = pool.map(lambda language: outline_code(SAMPLES[language].text, language), languages)
        assert list(made) == [alone[language] for language in languages]


def test_grammars_are_loaded_only_when_there_is_code_for_them() -> None:
    program = (
        "import sys, everkept.families.history.code_outlines as o\n"
        "loaded = [name for name in sys.modules if name.startswith('tree_sitter')]\n"
        "o.outline_code('f(1)', 'python'); o.outline_code('x', 'cobol')\n"
        "later = [name for name in sys.modules if name.startswith('tree_sitter_')]\n"
        "print(loaded, 'tree_sitter_python' in later, 'tree_sitter_cpp' in later)"
    )
    assert python(program) == "[] True False"


@pytest.mark.parametrize("missing", ["tree_sitter", "tree_sitter_go"])
def test_without_a_grammar_code_has_an_empty_outline(missing: str) -> None:
    program = (
        f"import sys; sys.modules['{missing}'] = None\n"
        "from everkept.families.history.code_outlines import CodeOutline, outline_code\n"
        "print(outline_code('func f() { g() }', 'go') == CodeOutline())"
    )
    assert python(program) == "True"
