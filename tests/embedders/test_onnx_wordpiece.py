import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers.implementations import BertWordPieceTokenizer

from everkept.embedders import onnx
from everkept.embedders.onnx import MAX_CACHED_CHARACTERS, MAX_WORD_CHARACTERS, SPECIAL_PIECES, WordPiece
from examples import examples

PIECES = (onnx.MODEL_FOLDER / onnx.VOCABULARY_FILE).read_text(encoding="utf-8").split()
IDS = {piece: number for number, piece in enumerate(PIECES)}
OURS = WordPiece(PIECES)
THEIRS = BertWordPieceTokenizer(vocab=IDS, lowercase=True)

SAMPLES = [
    "",
    " \t\r\n ",
    "Caroline's support-group met at 7pm; she'd said: \"it helps\" (a lot).",
    "def área(r: float) -> float:\n\treturn 3.14159 * r**2  # π·r²",
    "https://example.org/a_b?c=d&e=%20#f <div class='x'>&amp;</div>",
    "C:\\Users\\naïve\\file_name-v1.2.3.tar.gz $HOME ~/.config {} [] | ^ `x`",
    "Füße, Übermut und ŒUVRE: élève, ﬁn, İstanbul, ΟΔΥΣΣΕΥΣ, ЁЛКА",
    "猫がソファで寝ています。東京タワーへ行った。ﾊﾝｶｸ",
    "我们把数据库从MySQL迁移到了PostgreSQL。\U0002b8f0\U0002b930\U0002f80c",
    "고양이가 소파에서 자고 있습니다",
    "القطة نائمة على الأريكة، أليس كذلك؟ ٣٤٥",
    "החתול ישן על הספה",
    "แมวกำลังนอนอยู่บนโซฟา",
    "बिल्ली सोफ़े पर सो रही है।",
    "🎉🚀 👩‍👩‍👧‍👦 👍🏽 ❤️ 🇩🇪 1️⃣",
    "zero\u200bwidth soft\u00adhyphen bom\ufeff nul\0 bad\ufffd form\ffeed line\u2028sep \x1c\x85",
    "a[CLS]b [SEP] [sep] [MASK][PAD] [UNK] [CL\fS] [UNK",
    "##ing ### #a ##",
    "e\u0301 e\u0327\u0301 a\u3099 \u1100\u1161\u11a8 \u302e\u3099 q\u0307\u0323",
    "x" * MAX_WORD_CHARACTERS,
    "x" * (MAX_WORD_CHARACTERS + 1),
    "\u00e9" * MAX_WORD_CHARACTERS,
    "antidisestablishmentarianism-" * 30,
    "東" * (MAX_CACHED_CHARACTERS + 1),
]

SCRIPTS = "".join(SAMPLES)
WORDS = st.sampled_from([piece.removeprefix("##") for piece in PIECES if piece not in SPECIAL_PIECES])
GLUE = st.sampled_from(["", " ", "\n", "\u00a0", "-", ".", "\u0301", "\0", "\f", "[SEP]", "語"])
TEXTS = st.one_of(
    st.text(),
    st.text(SCRIPTS),
    st.lists(st.one_of(WORDS, WORDS.map(str.upper), GLUE, st.text(max_size=2))).map("".join),
)


def reference(text: str) -> list[int]:
    return THEIRS.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("text", SAMPLES)
def test_the_ids_of_a_sample_are_those_of_the_reference(text: str) -> None:
    assert OURS.encode(text) == reference(text)


@settings(max_examples=examples(1_500), deadline=None)
@given(TEXTS)
@example("A\u0345\u0301b")
def test_the_ids_of_any_text_are_those_of_the_reference(text: str) -> None:
    assert OURS.encode(text) == reference(text)


@pytest.mark.parametrize("plane", range(17))
def test_every_character_inside_a_word_is_taken_as_the_reference_takes_it(plane: int) -> None:
    """All of the first two planes, and every 16th character beyond, where blocks are uniform."""
    step = 1 if plane < 2 else 16
    characters = map(chr, range(plane << 16, (plane + 1) << 16, step))
    inside = [f"a{c}b" for c in characters if unicodedata.category(c) != "Cs"]
    found = {word: OURS.encode(word) for word in inside}
    encoded = THEIRS.encode_batch(inside, add_special_tokens=False)
    expected = {word: one.ids for word, one in zip(inside, encoded, strict=True)}
    assert {word: ids for word, ids in found.items() if ids != expected[word]} == {}


def test_a_lone_surrogate_is_left_out() -> None:
    assert OURS.encode("snow\ud83dman") == OURS.encode("snowman")


def test_a_framed_text_is_what_the_reference_gives_the_model() -> None:
    text = "Marks of start and end."
    assert OURS.add_marks(OURS.encode(text)) == THEIRS.encode(text).ids


def test_a_vocabulary_is_read_whatever_its_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes("\r\n".join([*SPECIAL_PIECES, "snow", "##man", ""]).encode())
    assert WordPiece.from_file(path).encode("Snowman snow man") == [5, 6, 5, 1]


@pytest.mark.parametrize("pieces", [[], ["[PAD]", "[UNK]", "[CLS]", "snow"], [*SPECIAL_PIECES, "snow", "snow"]])
def test_what_is_no_vocabulary_is_refused(pieces: list[str]) -> None:
    with pytest.raises(ValueError):
        WordPiece(pieces)
