import pytest

from everkept.core.records import Record
from everkept.families.history.model import CODE, DECISION, SAID, TURN
from everkept.families.history.search.worth import (
    LEAST,
    NEAR,
    NEAR_A_WORD,
    newest_of_equals,
    one_for_a_turn,
    worthwhile,
)
from everkept.language import telling_words
from everkept.retrieval.profile import Hit

FAR = NEAR - 0.05
LONG = "Clean up the caching of docker layers."


def hit(text: str, score: float = 0.5, cosine: float | None = None, **more: object) -> Hit:
    fields = {"type": SAID, "kind": TURN, "name": None, "parent": None, "at": 1} | more
    record = Record(
        str(fields.get("id", text)),
        str(fields["kind"]),
        1,
        1,
        text=text,
        type=str(fields["type"]),
        name=fields["name"],  # type: ignore[arg-type]
        parent=fields["parent"],  # type: ignore[arg-type]
        occurred_at=int(str(fields["at"])),
    )
    why = fields.get("why", {})
    return Hit(record, score, why, cosine=cosine)  # type: ignore[arg-type]


def texts(hits: list[Hit]) -> list[str]:
    return [one.record.text for one in hits]


@pytest.mark.parametrize(
    ("query", "one", "is_shown"),
    [
        ("kubernetes pod evicted", hit(LONG, cosine=FAR), False),
        ("kubernetes pod evicted", hit(LONG, cosine=NEAR), True),
        ("xyzzyplugh", hit(LONG, cosine=NEAR), False),
        ("xyzzyplugh", hit(LONG, cosine=NEAR_A_WORD), True),
        ("docker images", hit(LONG), True),
        ("kubernetes pods", hit(LONG, why={"keyword": 0.5}), False),  # a word beside it
        ("what was said in May", hit(LONG, why={"date": 0.5}), True),
        ("what did Ann say", hit(LONG, why={"author": 0.5}), True),
        ("state of the cart", hit("Go with Zustand.", type=DECISION, why={"keyword": 0.3}), True),
        ("login", hit("Perfect, thanks!", cosine=0.9), False),
        ("is it perfect", hit("Perfect, thanks!", cosine=0.1), True),
        ("state library of the cart", hit("Let me see src/Cart.tsx.", cosine=0.9), False),
        ("the cart", hit("Let me see src/Cart.tsx."), True),
        ("the anthropic package", hit("Use [masked: anthropic key] as key for it"), False),
        ("cache.py", hit("x = 1", kind=CODE, name="src/cache.py"), True),
    ],
)
def test_something_of_its_own_must_speak_for_a_hit(query: str, one: Hit, is_shown: bool) -> None:
    assert bool(worthwhile([one], query)) is is_shown


def test_what_is_far_behind_the_best_is_left_out() -> None:
    best, good = hit("the login form", 0.8), hit("a login form", 0.8 * LEAST)
    bad = hit("some login form", 0.8 * LEAST - 0.01)
    assert worthwhile([best, good, bad], "which login form is it") == [best, good]


def test_a_stop_word_of_another_language_speaks_for_nothing() -> None:
    assert not worthwhile([hit("Das ist der Fehler im Programm.")], "Wie war das mit dem Login?")
    assert worthwhile([hit("Das ist der Fehler im Programm.")], "das")


def test_a_rare_word_wins_over_what_is_only_near() -> None:
    near = hit("The throttle of the sign-in page", 1.0, cosine=0.8)
    exact = hit("Call bucket_key(account) here", 0.3, cosine=0.1)
    assert texts(worthwhile([near, exact], "`bucket_key`")) == texts([exact, near])
    # In a sentence the words are not meant that literally.
    assert worthwhile([near, exact], "how is the bucket_key of the throttle made")[0] == near


def test_of_equal_texts_the_newest_has_the_best_score() -> None:
    old, new = hit("The  same", 0.9, id="a", at=1), hit("The same", 0.4, id="b", at=2)
    [one] = newest_of_equals([old, new])
    assert (one.record.id, one.score) == ("b", 0.9)


def test_a_text_that_no_other_equals_keeps_its_hit() -> None:
    hits = [hit("one text"), hit("another text")]
    assert [new is old for new, old in zip(newest_of_equals(hits), hits, strict=True)] == [True] * 2


def test_a_turn_stands_for_code_that_its_text_shows() -> None:
    turn = Record("t", TURN, 1, 1, text="So:\n```\nx = 1\n```")
    shown = hit("x = 1", 0.9, kind=CODE, id="c1", parent="t")
    edit = hit("y = 2", 0.8, kind=CODE, id="c2", parent="t")
    found = [*one_for_a_turn([shown, edit], {"t": turn})]
    assert [(one.record.id, one.score) for one in found] == [("t", 0.9)]
    assert [one.record.id for one in one_for_a_turn([edit], {"t": turn})] == ["c2"]
    assert [one.record.id for one in one_for_a_turn([shown], {})] == ["c1"]


def test_a_text_without_the_letters_of_a_word_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    prepare = telling_words.index_text

    def noted(text: str) -> str:
        read.append(text)
        return prepare(text)

    monkeypatch.setattr(telling_words, "index_text", noted)
    query = "kubernetes pods evicted overnight"
    far = [hit(f"Clean up the caching of docker layers, part {n}.") for n in range(60)]
    near = hit("The pods were evicted when the disk was full.")
    assert worthwhile([*far, near], query) == [near]
    assert len(read) == 2  # the question, and the text that has its words
