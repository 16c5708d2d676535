import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from code_samples import SAMPLES
from everkept.families.history.code_outlines import (
    MAX_NAME_CHARACTERS,
    MAX_NAMES,
    CodeCall,
    CodeDefinition,
    CodeInheritance,
    CodeOutline,
    outline_code,
)
from examples import examples

LANGUAGES = sorted(SAMPLES)


def defined(made: CodeOutline) -> dict[str, str]:
    return {each.name: each.kind for each in made.defines}


def called(made: CodeOutline) -> set[tuple[str, str | None]]:
    return {(each.name, each.by) for each in made.calls}


def imported(made: CodeOutline) -> list[str]:
    return [each.name for each in made.imports]


def extended(made: CodeOutline) -> list[tuple[str, str | None]]:
    return [(each.name, each.by) for each in made.extends]


@pytest.mark.parametrize("language", LANGUAGES)
def test_code_is_outlined(language: str) -> None:
    sample = SAMPLES[language]
    made = outline_code(sample.text, language)
    assert defined(made) == sample.defines
    assert called(made) == sample.calls
    assert imported(made) == sample.imports
    assert extended(made) == sample.extends


@pytest.mark.parametrize(
    ("language", "text", "name", "by"),
    [
        ("python", "class Cart:\n    def sum(self):\n        self.add()", "Cart.add", "Cart.sum"),
        ("python", "import numpy as np\nnp.array([1])", "numpy.array", None),
        ("python", "from shop import total as add_up\nadd_up()", "total", None),
        ("python", "def pay(cart):\n    cart.total()", "total", "pay"),
        ("python", "class A:\n    def f(self):\n        def g(): self.h()", "A.h", "g"),
        ("javascript", "const go = () => Cart.make()", "Cart.make", "go"),
        ("typescript", "class A { b = async () => { this.c() } }", "A.c", "A.b"),
        ("go", "func (c *Cart) Sum() { c.Add() }", "Cart.Add", "Cart.Sum"),
        ("rust", "impl Cart { fn sum(&self) { Self::add() } }", "Cart.add", "Cart.sum"),
        ("java", "class Cart { void sum() { add(); } void add() {} }", "Cart.add", "Cart.sum"),
        ("cpp", "int Cart::sum() { return this->add(); }", "Cart.add", "Cart.sum"),
        ("csharp", "class Cart { void Sum() { this.Add2(); } }", "Cart.Add2", "Cart.Sum"),
    ],
)
def test_a_call_has_its_class_or_module_where_the_code_tells_it(
    language: str, text: str, name: str, by: str | None
) -> None:
    assert CodeCall(name, by) in outline_code(text, language).calls


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "print(len(items)); items.append(str(1))"),
        ("javascript", "console.log(JSON.stringify(items.map(String)))"),
        ("typescript", "Promise.all(items.map(Number)).then(console.log)"),
        ("go", 'fmt.Println(len(items), append(items, "x"))'),
        ("rust", 'fn main() { println!("{}", String::new()); Some(1).unwrap(); }'),
        ("java", "class A { void f() { System.out.println(list.size()); } }"),
        ("cpp", 'void f() { printf("x"); std::move(x); v.push_back(1); }'),
        ("csharp", "class A { void F() { Console.WriteLine(x.ToString()); } }"),
    ],
)
def test_what_all_code_calls_is_left_out(language: str, text: str) -> None:
    assert outline_code(text, language).calls == ()


@pytest.mark.parametrize(
    ("language", "text", "name"),
    [
        ("javascript", "  async total(items) {\n    return this.sum(items)\n  }\n", "total"),
        ("typescript", "  private total(items: Item[]): number {\n    return 1\n  }\n", "total"),
        ("java", "@Override\nprotected int total(int x) {\n  return sum(x);\n}", "total"),
        ("csharp", "public override async Task<int> Total() { return await Sum(); }", "Total"),
        ("rust", "pub fn total(&self) -> i32 {\n    self.sum()\n}", "total"),
        ("cpp", "int total() const {\n  return sum();\n}", "total"),
        ("python", "    def total(self):\n        return self.sum()\n", "total"),
    ],
)
def test_a_method_is_known_without_its_class(language: str, text: str, name: str) -> None:
    assert defined(outline_code(text, language)).get(name) in ("method", "function")


def test_indentation_out_of_the_middle_of_a_file_is_understood() -> None:
    text = """\
def total(self):
        return add_up(self.items)

    def tax(self):
        return rate(self.country)
"""
    made = outline_code(text, "python")
    assert defined(made).keys() == {"total", "tax"}
    assert called(made) == {("add_up", "total"), ("rate", "tax")}


def test_markup_in_typescript_is_understood() -> None:
    text = "export const App = () => <Panel title={pick(1)}><div><Item /></div></Panel>"
    made = outline_code(text, "typescript")
    assert called(made) == {("Panel", "App"), ("pick", "App"), ("Item", "App")}


def test_code_that_breaks_off_keeps_what_was_there() -> None:
    text = "public class Cart : Base {\n  public int Total() {\n    foreach (var x in Items()) {\n"
    made = outline_code(text, "csharp")
    assert made.defines == (CodeDefinition("Cart", "class"), CodeDefinition("Cart.Total", "method"))
    assert made.extends == (CodeInheritance("Base", "Cart"),)
    assert made.calls == (CodeCall("Items", "Cart.Total"),)


@pytest.mark.parametrize("language", [None, "", "cobol", "markdown", "text", "json"])
def test_a_language_without_a_grammar_has_an_empty_outline(language: str | None) -> None:
    assert outline_code("def f():\n    g()", language) == CodeOutline()


def test_of_a_patch_only_what_it_leaves_is_outlined() -> None:
    text = """\
diff --git a/shop.py b/shop.py
--- a/shop.py
+++ b/shop.py
@@ -1,3 +1,3 @@ class Cart:
 def total(items):
-    return old_sum(items)
+    return new_sum(items)
--- a/web/app.ts
+++ b/web/app.ts
@@ -0,0 +1 @@
+export function show() { return render() }
"""
    made = outline_code(text, "diff")
    assert defined(made).keys() == {"total", "show"}
    assert called(made) == {("new_sum", "total"), ("render", "show")}


def test_there_are_not_more_names_than_a_person_could_want() -> None:
    functions = "\n".join(f"def f{n}():\n    g{n}()" for n in range(MAX_NAMES * 2))
    bases = ", ".join(f"Base{n}" for n in range(50))
    imports = "\n".join(f"import m{n}" for n in range(MAX_NAMES * 2))
    made = outline_code(f"{imports}\nclass A({bases}): pass\n{functions}", "python")
    assert len(made.defines) == len(made.calls) == len(made.imports) == MAX_NAMES
    assert len(made.extends) == 50


def test_a_name_that_goes_on_for_ever_is_none() -> None:
    name = "x" * (MAX_NAME_CHARACTERS + 1)
    assert outline_code(f"def {name}(): pass\ndef f(): {name}()", "python").calls == ()


@given(st.sampled_from(LANGUAGES), st.binary(max_size=400))
def test_any_bytes_have_an_outline(language: str, noise: bytes) -> None:
    for encoding in ("latin-1", "utf-8"):
        outline_code(noise.decode(encoding, "surrogateescape"), language)


@settings(max_examples=examples(200))
@given(st.data(), st.sampled_from(LANGUAGES))
def test_a_cut_anywhere_leaves_an_outline_of_known_names(data: st.DataObject, language: str) -> None:
    text = SAMPLES[language].text
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    made = outline_code(text[start:end], language)
    for each in (*made.defines, *made.calls, *made.imports, *made.extends):
        assert each.name
        assert len(each.name) <= MAX_NAME_CHARACTERS


@settings(max_examples=examples(100))
@given(st.sampled_from(LANGUAGES), st.lists(st.sampled_from("(){}[]<>\"'`/*#=;:,.\n ax"), max_size=300))
def test_a_heap_of_signs_has_an_outline(language: str, signs: list[str]) -> None:
    outline_code("".join(signs), language)


def test_the_same_text_has_the_same_outline() -> None:
    for language in LANGUAGES:
        text = SAMPLES[language].text
        assert outline_code(text, language) == outline_code(text, language)
