from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.core import context_text
from everkept.core.context_text import count_tokens

# The most that cl100k, o200k and a published Claude vocabulary make of each text.
MEASURED = (
    ("The user prefers small functions, plain names and tests that read as sentences.", 15),
    ("Decided against caching: stale reads were worse than slow ones, Ana said.", 16),
    ("def count(text: str) -> int:\n    return sum(_tokens(m) for m in _WORDS.finditer(text))\n", 29),
    ("    if (error instanceof TimeoutError) {\n        throw new Retryable(error);\n    }", 18),
    ('{"memory_id": "memory:01JD8Z7Q", "tags": ["auth", "grpc"], "importance": 0.75}', 32),
    ("src/everkept/core/context_text.py:28 /usr/lib/python3.11/site-packages/numpy/core/", 30),
    ("https://example.org/docs/v2/reference?section=tokens&page=17#counting", 22),
    ("SELECT id, text FROM records WHERE deleted_at IS NULL ORDER BY id DESC LIMIT 20;", 19),
    ("qL3fYp0m9XvT2eRkZB7uJw5nD8sHcGaKxMiPoUyNtVb6SdQlEr1WhIzFjCgA4O==", 58),
    ("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", 44),
    ("3f2504e0-4f89-41d3-9a0c-0305e82c3301", 27),
    ("31415926535897932384626433832795028841971693993751", 22),
    ("2026-02-23T10:00:00.000Z 127.0.0.1:8080 1,234,567.89", 34),
    ("!?#$%&/()=+*~^°§[]{}<>|\\\"';:,._-", 23),
    ("a    b\t\t\tc\n\n\n\n        d   \n \n", 10),
    ("Die Geschwindigkeitsbegrenzung steht in der ausführlichen Fehlermeldung.", 24),
    ("L'utilisateur préfère que les messages d'erreur soient détaillés, même dans les journaux.", 28),
    ("Użytkownik woli szczegółowe komunikaty o błędach, które wskazują źródło problemu.", 43),
    ("Käyttäjä haluaa yksityiskohtaisia virheilmoituksia, joista selviää ongelman alkuperä.", 38),
    ("Пользователь предпочитает подробные сообщения об ошибках.", 22),
    ("Ο χρήστης προτιμά λεπτομερή μηνύματα σφάλματος.", 55),
    ("用户更喜欢详细的错误信息，其中说明问题的来源。", 20),
    ("ユーザーは、問題の原因を示す詳細なエラーメッセージを好みます。", 34),
    ("사용자는 문제의 원인을 알려 주는 자세한 오류 메시지를 선호합니다.", 36),
    ("उपयोगकर्ता विस्तृत त्रुटि संदेश पसंद करता है।", 53),
    ("يفضل المستخدم رسائل خطأ مفصلة تذكر مصدر المشكلة.", 46),
    ("ผู้ใช้ชอบข้อความแสดงข้อผิดพลาดโดยละเอียด", 68),
    ("🚀🔥👩\u200d💻👨\u200d👩\u200d👧\u200d👦✅⚠️❤️", 40),
    ("WARNING: DO NOT DEPLOY ON FRIDAYS", 11),
)

ASCII = st.text(alphabet=st.characters(max_codepoint=127))
AWKWARD = st.text(alphabet="aeTBbcdfxz 01\n-éпÄ用→🚀")  # where one kind of stretch meets another
TEXTS = st.text(alphabet=st.characters(exclude_categories=())) | ASCII | AWKWARD


def test_no_text_counts_less_than_real_vocabularies_make_of_it() -> None:
    too_low = {text: (count_tokens(text), real) for text, real in MEASURED if count_tokens(text) < real}
    assert too_low == {}


def test_prose_and_code_are_not_counted_twice_over() -> None:
    real = sum(real for _, real in MEASURED[:8])
    counted = sum(count_tokens(text) for text, _ in MEASURED[:8])
    assert counted < 2 * real


def test_the_empty_text_has_no_tokens() -> None:
    assert count_tokens("") == 0


def test_a_short_word_is_one_token_with_its_blank() -> None:
    assert count_tokens("we do it") == 3


def test_a_key_costs_more_than_a_name_of_its_length() -> None:
    assert count_tokens("aB3xK9mQ2zR7") > 2 * count_tokens("consolidated")


@settings(deadline=None)
@given(TEXTS)
def test_only_the_empty_text_is_free(text: str) -> None:
    assert (count_tokens(text) == 0) == (text == "")


@settings(deadline=None)
@given(TEXTS)
def test_no_text_has_more_tokens_than_bytes(text: str) -> None:
    assert count_tokens(text) <= len(text.encode("utf-8", "surrogatepass"))


@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_joining_two_texts_costs_next_to_nothing(first: str, second: str) -> None:
    assert count_tokens(first + second) <= count_tokens(first) + count_tokens(second) + 3


@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_a_longer_text_counts_no_less(text: str, more: str) -> None:
    assert count_tokens(text + more) >= count_tokens(text)


@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_lines_add_up(first: str, second: str) -> None:
    lines = count_tokens(f"- {first}\n") + count_tokens(f"- {second}\n")
    assert count_tokens(f"- {first}\n- {second}\n") == lines


def test_the_pattern_has_no_class_of_characters_that_is_slow_to_compile() -> None:
    assert "\\u" not in context_text._STRETCHES.pattern.lower()


@given(st.lists(st.characters(min_codepoint=128, exclude_categories=())))
def test_beyond_ascii_each_character_counts_by_itself(characters: list[str]) -> None:
    counts = [count_tokens(character) for character in characters]
    assert count_tokens("".join(characters)) == sum(counts)
    assert set(counts) <= {1, 2, 3, 4}
