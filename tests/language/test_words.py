from collections.abc import Iterator

import apsw
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from everkept.language.spellings import fold, split_tokens, stem
from everkept.language.words import (
    MAX_NESTED_PARENTHESES,
    MAX_PHRASE_WORDS,
    MAX_TERMS,
    AllOf,
    AnyOf,
    TypedQuery,
    Without,
    WordPhrase,
    WordQuery,
    build_index_text,
    compute_indexed_prefix,
    join_index_texts,
    parse_query,
    prepare_text,
    to_fts5,
)
from examples import examples

CATEGORIES = "L* N* Co Mn Mc"
ENGLISH_LIKE = st.from_regex(r"[a-z]{1,4}[aeiouy]{1,2}[a-z]{1,3}(at|er|s|y|ion|ic|e)?", fullmatch=True)
UNSPACED = "日本語検索東京ひらがなカタカナー한국어데이터ภาษาไทยພາສາខ្មែរမြန်မာ"


class Index:
    """A word index as an engine has it."""

    def __init__(self, *texts: str) -> None:
        self.db = apsw.Connection(":memory:")
        self.db.execute(
            "CREATE VIRTUAL TABLE words USING fts5(name, text, context,"
            " content='', contentless_delete=1, tokenize=\"porter unicode61"
            f" remove_diacritics 2 categories '{CATEGORIES}'\")"
        )
        for number, text in enumerate(texts):
            self.put(number, text)

    def put(self, number: int, text: str) -> None:
        self.db.execute(
            "INSERT OR REPLACE INTO words(rowid, name, text, context) VALUES (?, '', ?, '')",
            (number, build_index_text(text)),
        )

    def match(self, expression: str) -> list[int]:
        rows = self.db.execute("SELECT rowid FROM words(?) ORDER BY rowid", (expression,))
        return [number for (number,) in rows]

    def find(self, query: WordQuery | None) -> list[int]:
        return self.match(to_fts5(query)) if query else []


def meaning(query: TypedQuery) -> WordQuery | None:
    return query.expression or query.build_all_query()


def finds(typed: str, text: str) -> bool:
    return Index(text).find(meaning(parse_query(typed))) == [0]


SCRATCH = Index()

AWKWARD = [
    ("C++", "we rewrote it in C++ last year", "plan C is to wait"),
    ("C#", "the client is C# on Windows", "plan C is to wait"),
    ("node.js", "runs on node.js 20", "the node is a js file"),
    ("foo-bar", "call foo-bar twice", "bar the foo"),
    ("src/main.py", "see src/main.py line 3", "the main src is py"),
    ("main.py", "see src/main.py line 3", "py is the main thing"),
    ("foobar", "call foo-bar twice", "foo and bar"),
    ("camel case", "names are camelCase here", "a camel in a suitcase"),
    ("user name", "it calls getUserName()", "it calls getUser()"),
    ("getUserName", "how to get user name from the token", "how to get the token"),
    ("snake case", "names are snake_case here", "a snake in a suitcase"),
    ("HTTPServer", "raised HTTPServerError at start", "the HTTP client failed"),
    ("v1.2.3", "released v1.2.3 today", "released v1.3.2 today"),
    ("1.2.3", "released v1.2.3 today", "released v1.3.2 today"),
    ("error: cannot find", "error: cannot find module", "error: found module"),
    ("TypeError: 'NoneType'", "TypeError: 'NoneType' object", "TypeError: 'str' object"),
    ("E0308", "error[E0308]: mismatched types", "error[E0277]: trait bound"),
    ("192.168.0.1", "the router is 192.168.0.1", "the router is 192.168.1.0"),
    ("ada@example.com", "mail ada@example.com about it", "mail bob@example.com about it"),
    ("🎉", "it is done🎉", "it is done"),
    ("検索", "日本語検索の設定", "日本語の設定"),
    ("数据", "打开数据库连接", "打开连接"),
    ("語", "日本語検索の設定", "日本の設定"),
    ("库", "打开数据库连接", "打开数据连接"),
    ("日本語検索", "新しい日本語検索の設定", "日本の検索"),
    ("数据库", "打开数据库连接", "打开库数据连接"),
    ("데이터", "빅데이터를 분석한다", "빅뱅을 분석한다"),
    ("ภาษา", "เอกสารภาษาไทย", "เอกสารไทย"),
    ("ไทย", "เอกสารภาษาไทย", "เอกสารภาษา"),
    ("Größe", "die Grösse der Datei", "die Länge der Datei"),
    ("Strasse", "in der Straße", "in der Gasse"),
    ("uber", "Über uns", "unter uns"),
    ("naïve", "a naive parser", "a native parser"),
    ("parsers", "a naive parser", "a naive reader"),
    ("auth*", "the authentication flow", "the flow of data"),
    ("Python入門", "Python入門書を読む", "Python書を読む"),
]


@pytest.mark.parametrize(("typed", "wanted", "other"), AWKWARD)
def test_an_awkward_query_finds_its_text_and_not_the_other(typed: str, wanted: str, other: str) -> None:
    assert Index(wanted, other).find(meaning(parse_query(typed))) == [0]


def test_the_middle_of_a_word_is_left_to_substring_search() -> None:
    query = parse_query("arser")
    assert Index("a naive parser").find(query.build_all_query()) == []
    assert query.text == "arser"


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("what's up? Alice", "Alice asked: what's up?"),
        ("whats up", "what's up?"),
        ('foo" AND (', "foo is here"),
        ("NOT x", "x marks the spot"),
        ("NEAR(ant bee)", "a bee and an ant"),
        ('NEAR("ant" bee, 10)', "a bee and an ant"),
        ("^ant", "a bee and an ant"),
        ("ant:bee", "ant: bee"),
        ("user:foo", "user:foo is set"),
        ("AND", "and so on"),
        ("-bee", "a bee"),
        ("{ant} + bee", "ant bee"),
        ("main() OR nothing", "int main(void)"),
        ("ant\0bee", "ant\0bee"),
        ("ant\x1bbee\x7f", "the ant\x07bee"),
        ("\ud83cant", "ant\udf89"),
        ("C++17", "C++ 17 is old"),
        ("C++", "needs C++17"),
        (".NET", "a .NET 8 service"),
        ("username", "the user-name is empty"),
        ("user-name", "the username is empty"),
        ("don't", "i dont know"),
        ("dont", "I don’t know"),
        ("URL", "all URLs are checked"),
        ("5 GB", "a 5GB disk"),
        ("UTF-8", "encoded as utf8"),
        ("20240115", "on 2024-01-15"),
        ("auth", "uses OAuth2"),
        ("redis,postgres", "postgres or redis"),
        ("1,000", "costs 1,000 a month"),
        ("👍", "fine 👍🏽"),
        ("❤", "with ❤️ from here"),
        ("ｆｕｌｌ", "full width"),
        ("co\u00adoperate", "we cooperate"),
        ("東京tower", "昔の東京towerだ"),
        ("हिन्दी", "यह हिन्दी है"),
        ("ΟΔΟΣ", "η οδός είναι εδώ, οδος"),
        ("日本 NOT 東京", "日本の設定"),
        ("(ant)OR(bee)", "a bee"),
        ("**bold**", "in bold letters"),
        ("what is the port", "port 8080"),
        ('what is "the port"', "it is the port"),
        ("“exact words”", "these exact words"),
        ("SAVE AND EXIT", "exit, then save"),
        ("FILE NOT FOUND", "error: file not found"),
    ],
)
def test_ordinary_text_is_found(typed: str, text: str) -> None:
    assert finds(typed, text)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("C", "only C++ here"),
        (".net", "see example.net"),
        ("123", "version 1.2.3"),
        ("iPhone", "I lost my phone"),
        ("bold*", "in bald letters"),
        ("res*", "to retry"),
        ('"bee ant"', "ant bee"),
        ("b", "9f86d081884c7d659a2feaa0c55ad015 550e8400-e29b-41d4-a716-446655440000"),
    ],
)
def test_what_only_looks_alike_is_not_found(typed: str, text: str) -> None:
    assert not finds(typed, text)


@pytest.mark.parametrize("typed", ["", " ", "?", "-", "&&", '"', '""', "( )", "*", "\0", "\ud800"])
def test_punctuation_asks_nothing(typed: str) -> None:
    query = parse_query(typed)
    assert (query.terms, query.expression) == ((), None)
    assert query.build_all_query() is None
    assert query.build_any_query() is None


@pytest.mark.parametrize(
    "typed",
    [
        'foo" AND (',
        'foo "',
        "AND",
        "NOT x",
        "x AND",
        "OR OR",
        "(a",
        "a) AND b",
        "user:foo",
        "^a",
        "a:b",
        "a (b c)",
        "x*",
        '5" and 6" pipe',
        "TO BE OR NOT TO BE",
    ],
)
def test_a_text_that_is_no_expression_is_plain_words(typed: str) -> None:
    query = parse_query(typed)
    assert query.expression is None
    assert query.terms


def test_a_typed_word_is_one_term_with_its_other_spellings() -> None:
    assert parse_query("getUserName v1.2 foo-bar port").terms == (
        AnyOf(
            (WordPhrase(("getusername",)), AllOf((WordPhrase(("get",)), WordPhrase(("user",)), WordPhrase(("name",)))))
        ),
        AnyOf((WordPhrase(("v1", "2")), WordPhrase(("v", "1", "2")), WordPhrase(("v12",)))),
        AnyOf((WordPhrase(("foo", "bar")), WordPhrase(("foobar",)))),
        WordPhrase(("port",)),
    )


def test_the_text_is_kept_as_it_was_typed() -> None:
    assert parse_query("  Größe NEAR(a) \n").text == "Größe NEAR(a)"


def test_stop_words_are_left_out_where_others_are_left() -> None:
    query = parse_query("What's the port?")
    assert len(query.terms) == 3
    assert query.build_all_query() == query.build_any_query() == WordPhrase(("port",))


def test_stop_words_alone_are_searched_for() -> None:
    query = parse_query("to be")
    assert query.build_all_query() == AllOf((WordPhrase(("to",)), WordPhrase(("be",))))
    assert query.build_any_query() == AnyOf((WordPhrase(("to",)), WordPhrase(("be",))))


def test_a_quoted_stop_word_is_asked_for() -> None:
    assert parse_query('"the" port').expression == AllOf((WordPhrase(("the",)), WordPhrase(("port",))))


def test_a_word_typed_twice_is_asked_for_once() -> None:
    assert parse_query("port Port").build_all_query() == WordPhrase(("port",))


def test_any_term_is_satisfied_by_one_word() -> None:
    index = Index("ant", "bee", "cat")
    assert index.find(parse_query("ant bee").build_any_query()) == [0, 1]
    assert index.find(parse_query("ant bee").build_all_query()) == []


def test_any_term_is_satisfied_by_one_piece_of_a_sentence_without_spaces() -> None:
    index = Index("データベースの設定", "天気がいい")
    assert index.find(parse_query("データベースのポートは何ですか").build_any_query()) == [0]


def test_the_terms_of_an_expression_are_those_it_wants() -> None:
    query = parse_query('ant OR "bee cat" NOT (dog OR eel)')
    assert query.terms == (WordPhrase(("ant",)), WordPhrase(("bee", "cat")))


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("ant AND bee", '"ant" AND "bee"'),
        ("ant OR bee AND cat", '"ant" OR ("bee" AND "cat")'),
        ("ant AND bee OR cat", '("ant" AND "bee") OR "cat"'),
        ("(ant OR bee) AND cat", '("ant" OR "bee") AND "cat"'),
        ("(ant OR bee) cat", '("ant" OR "bee") AND "cat"'),
        ("ant NOT bee AND cat", '("ant" NOT "bee") AND "cat"'),
        ("ant AND bee NOT cat", '"ant" AND ("bee" NOT "cat")'),
        ("ant bee NOT cat", '("ant" AND "bee") NOT "cat"'),
        ("ant NOT bee cat", '"ant" NOT ("bee" AND "cat")'),
        ("ant NOT bee NOT cat", '"ant" NOT ("bee" OR "cat")'),
        ('"ant bee" cat', '"ant bee" AND "cat"'),
        ('"ant be"* OR cat', '"ant be" * OR "cat"'),
        ('"ant be" * OR cat', '"ant be" * OR "cat"'),
        ("ant AND be*", '"ant" AND "be" *'),
        ("ant AND ? OR bee", '"ant" OR "bee"'),
        ("ant NOT ?", '"ant"'),
        ("ant AND () OR bee", '"ant" OR "bee"'),
        ("src/main AND C++", '"src main" AND "cplusplus"'),
        ('is "ant bee"', '"ant bee"'),
    ],
)
def test_an_expression_is_read_with_the_precedence_of_fts5(typed: str, expected: str) -> None:
    expression = parse_query(typed).expression
    assert expression
    assert to_fts5(expression) == expected


WORDS = ("ant", "bee", "cat", "dog")
SUBSETS = [" ".join(word for bit, word in enumerate(WORDS) if number >> bit & 1) for number in range(16)]


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """Expressions that FTS5 itself can read: no words beside a parenthesis."""
    operand = st.lists(st.sampled_from(WORDS), min_size=1, max_size=2).map(" ".join)
    expression = st.recursive(
        operand,
        lambda inner: st.lists(
            st.tuples(st.sampled_from(("AND", "OR", "NOT")), inner.map("({})".format) | operand), min_size=2, max_size=4
        ).map(lambda parts: " ".join(f"{op} {part}" for op, part in parts).split(" ", 1)[1]),
        max_leaves=6,
    )
    return draw(expression)


@settings(max_examples=examples(300), deadline=None)
@given(expressions())
@example("ant NOT bee NOT cat dog OR bee AND dog")
def test_an_expression_finds_what_fts5_finds(typed: str) -> None:
    assert SUBSET_INDEX.find(meaning(parse_query(typed))) == SUBSET_INDEX.match(typed)


SUBSET_INDEX = Index(*SUBSETS)


@pytest.mark.parametrize(
    ("beginning", "word"),
    [
        ("auth", "authentication"),
        ("authenti", "authentication"),
        ("authenticat", "authentication"),
        ("authentication", "authentication"),
        ("deploy", "deployment"),
        ("deploy", "deployed"),
        ("key", "keyboard"),
        ("runn", "running"),
        ("universi", "universities"),
        ("organiz", "organization"),
        ("controll", "controller"),
        ("quickl", "quickly"),
        ("res", "result"),
        ("getUser", "getUserName"),
        ("foo-ba", "foo-bar"),
        ("fooba", "foo-bar"),
    ],
)
def test_a_prefix_finds_a_word_even_where_its_stem_is_shorter(beginning: str, word: str) -> None:
    assert finds(f"{beginning}*", f"the {word} of it")


@pytest.mark.parametrize("beginning", ["abc", "authentication"])
def test_a_prefix_phrase_is_a_quoted_word_with_a_star(beginning: str) -> None:
    assert to_fts5(WordPhrase((beginning,), prefix=True)) == f'"{beginning}" *'


@pytest.mark.parametrize("beginning", ["res", "deploy", "sys", "key", "hous", "happy", "abc"])
def test_the_beginning_of_a_word_is_not_stemmed(beginning: str) -> None:
    assert compute_indexed_prefix(beginning) == beginning


@settings(max_examples=examples(300), deadline=None)
@given(ENGLISH_LIKE, st.integers(2, 12), st.sampled_from(["", "s", "ed", "ing", "ation", "ness"]))
def test_a_prefix_phrase_matches_stems_by_their_indexed_prefix(start: str, size: int, ending: str) -> None:
    word, beginning = start + ending, start[:size]
    SCRATCH.put(0, word)
    found = SCRATCH.find(WordPhrase((beginning,), prefix=True)) == [0]
    assert found == stem(word).startswith(compute_indexed_prefix(beginning))


def test_a_quote_in_a_word_cannot_end_the_string() -> None:
    assert to_fts5(Without(WordPhrase(('a"b',)), WordPhrase(("c",)))) == '"a""b" NOT "c"'


def test_only_the_first_terms_of_a_long_query_count() -> None:
    typed = " ".join(f"word{number}x" for number in range(MAX_TERMS * 2))
    assert len(parse_query(typed).terms) == MAX_TERMS
    assert parse_query(typed.replace(" ", " OR ")).expression is None
    dotted = parse_query("x.y" * MAX_PHRASE_WORDS).terms[0]
    assert isinstance(dotted, WordPhrase)
    assert len(dotted.words) == MAX_PHRASE_WORDS


def test_the_longest_queries_are_not_too_long_for_fts5() -> None:
    long = [f"getSome{chr(65 + n % 26)}Word{n}.fooBar-baz_{n}ati*" for n in range(MAX_TERMS)]
    plain = parse_query(" ".join(long))
    level = "ant OR bee AND cat NOT dog ("
    deep = parse_query(
        level * MAX_NESTED_PARENTHESES + "ant OR bee AND cat NOT v1.getName*" + ")" * MAX_NESTED_PARENTHESES
    )
    chain = parse_query(" NOT ".join(f"x{n}" for n in range(MAX_TERMS)))
    assert deep.expression
    assert chain.expression
    for query in (plain.build_all_query(), plain.build_any_query(), deep.expression, chain.expression):
        SUBSET_INDEX.find(query)


@pytest.mark.parametrize("unit", ["a", "A", "a-", "Aa", "a1", "日", "🎉", "é", "c+", ".n", "As", "'"])
def test_a_text_of_a_hundred_thousand_characters_is_no_trouble(unit: str) -> None:
    text = unit * (100_000 // len(unit))
    assert build_index_text(text).startswith(fold(text))
    assert len(parse_query(text).terms) <= MAX_TERMS


def test_parentheses_nested_too_deep_are_plain_words() -> None:
    def nested(depth: int) -> TypedQuery:
        return parse_query("(ant AND " * depth + "bee" + ")" * depth)

    assert nested(MAX_NESTED_PARENTHESES).expression
    assert nested(MAX_NESTED_PARENTHESES + 1).expression is None
    assert nested(MAX_NESTED_PARENTHESES + 1).terms
    assert parse_query("(" * 10_000 + '"ant"').build_all_query() == WordPhrase(("ant",))


CHARACTERS = st.characters(exclude_categories=())  # halves of surrogate pairs too
ANY_TEXT = st.text(CHARACTERS)
SYNTAX = """ " ( ) * ** AND OR NOT NEAR( , ; : ^ - + { } ' . .. ++ # 10) foo bar-baz getName v1.2
    C++ .NET 日本語 語 🎉 Größe “ ” \\ / what the ed* ness* ion """
PIECES = SYNTAX.split()
WITH_SPACES = (  # all before Thai, Georgian to Cherokee, Latin and Greek additions, pictures
    st.characters(max_codepoint=0xDFF, exclude_categories=())
    | st.characters(min_codepoint=0x10A0, max_codepoint=0x10FF)
    | st.characters(min_codepoint=0x1200, max_codepoint=0x13FF)
    | st.characters(min_codepoint=0x1E00, max_codepoint=0x27BF)
    | st.characters(min_codepoint=0x1F000, max_codepoint=0x1F1FF)
    | st.sampled_from("c#f+.NETßẞς\u200d\ufe0f\U0001f3fd")
)
SOUP = st.lists(st.sampled_from([*PIECES, " ", "\0", "\n"]) | ANY_TEXT, max_size=40).map("".join)
SPACED_SOUP = st.lists(st.sampled_from(PIECES), max_size=80).map(" ".join)


@settings(max_examples=examples(400), deadline=None)
@given(SOUP | SPACED_SOUP)
def test_no_query_is_an_error(typed: str) -> None:
    query = parse_query(typed)
    for reading in (query.expression, query.build_all_query(), query.build_any_query(), *query.terms):
        SUBSET_INDEX.find(reading)


@settings(max_examples=examples(300), deadline=None)
@given(st.text(st.characters(max_codepoint=127)) | SPACED_SOUP.filter(str.isascii))
def test_every_word_of_a_text_finds_it(text: str) -> None:
    SCRATCH.put(0, text)
    for word in text.split():
        asked = parse_query(word).build_all_query()
        assert asked is None or SCRATCH.find(asked) == [0], word


@settings(max_examples=examples(200), deadline=None)
@given(st.text(UNSPACED, min_size=1), st.data())
def test_every_stretch_of_a_text_without_spaces_finds_it(text: str, data: st.DataObject) -> None:
    SCRATCH.put(0, text)
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    assert SCRATCH.find(parse_query(text[start:end]).build_all_query()) == [0]


def sqlite_tokens(tokenizer: str, text: str) -> list[str]:
    options = ["remove_diacritics", "2", "categories", CATEGORIES]
    if tokenizer == "porter":
        options.insert(0, "unicode61")
    tokenize = SCRATCH.db.fts5_tokenizer(tokenizer, options)
    found = tokenize(text.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False)
    return [str(words[0]) for words in found]


@settings(max_examples=examples(400), deadline=None)
@given(ANY_TEXT | SOUP)
def test_tokens_are_those_sqlite_makes_of_folded_text(text: str) -> None:
    prepared = build_index_text(text)
    assert split_tokens(prepared) == sqlite_tokens("unicode61", prepared)


@settings(max_examples=examples(400), deadline=None)
@given(SOUP | st.text(st.characters(max_codepoint=0x24F)))
def test_stems_of_tokens_are_what_the_index_holds(text: str) -> None:
    prepared = build_index_text(text)
    assert [stem(word) for word in split_tokens(prepared)] == sqlite_tokens("porter", prepared)


def blocks() -> Iterator[str]:
    """Two planes and the ends of the others, each character alone, in a word, before marks."""
    ends = [edge for plane in range(0x20000, 0x110000, 0x10000) for edge in (plane, plane + 0xF000)]
    for first in [*range(0, 0x20000, 0x1000), *ends]:
        characters = [chr(code) for code in range(first, first + 0x1000)]
        yield " ".join(f"{c} q{c}z s{c}\u0307\u0308x" for c in characters)


def test_folded_text_has_no_character_that_sqlite_and_python_see_differently() -> None:
    for block in blocks():
        folded = fold(block)
        assert split_tokens(folded) == sqlite_tokens("unicode61", folded)


@settings(max_examples=examples(400), deadline=None)
@given(st.text(WITH_SPACES))
def test_folding_twice_is_folding_once_in_scripts_with_spaces(text: str) -> None:
    # A run of the others becomes pieces, and a piece would be a run again.
    folded = fold(text)
    assert fold(folded) == folded


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("plain Text, as it is", "plain Text, as it is"),
        ("日本語", " 日本 本語 語 "),
        ("語", " 語 "),
        ("C言語", "C 言語 語 "),
        ("done🎉", "done emoji1f389 "),
        ("C++ c# F# .NET", "Cplusplus Csharp Fsharp dotnet"),
        ("abc#def i.net ..net c+++", "abc#def i.net ..net c+++"),
        ("Straße STRAẞE", "Strasse STRAssE"),
        ("a\0b", "a b"),
        ("don’t", "don't"),
        ("100₽", "100 "),
    ],
)
def test_folding_happens_in_place(text: str, folded: str) -> None:
    assert fold(text) == folded


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ("plain text, with Names and USB.", ""),
        ("getUserName", "get User Name"),
        ("v1.2.3", "v 1 2 3\nv123"),
        ("foo-bar", "foobar"),
        ("foo-bar foo-bar, (foo-bar)", "foobar"),
        ("HTTPServerError", "HTTP Server Error"),
        ("URLs", ""),
        ("OAuth2", "O Auth 2"),
        ("3.14", ""),
        ("done🎉", ""),
        ("9f86d081884c7d659a2feaa0c55ad015", ""),
        ("-".join(["long"] * 40), ""),
    ],
)
def test_other_ways_to_write_a_word_follow_the_text(text: str, added: str) -> None:
    assert build_index_text(text) == (f"{fold(text)}\n{added}" if added else fold(text))


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(SOUP | SPACED_SOUP, max_size=4))
def test_texts_prepared_apart_are_indexed_as_one_with_a_line_for_each(texts: list[str]) -> None:
    assert join_index_texts([prepare_text(text) for text in texts]) == build_index_text("\n".join(texts))
