"""Parts of files inside a budget."""

import pytest

from everkept.families.bank.context_budget import can_fit, count_text_tokens, cut_beginning, select_best_part

SENTENCES = "The first thing is said here. The second one follows it.\nA third line is next. "


@pytest.mark.parametrize("room", [24, 40, 80, 200])
def test_a_long_paragraph_is_cut_after_a_sentence_or_a_line(room: int) -> None:
    part = cut_beginning(SENTENCES * 30, room)
    assert part is not None
    assert count_text_tokens(part) <= room
    whole = part.removesuffix(" …\n")
    assert (SENTENCES * 30).startswith(whole)
    assert whole.endswith(".")


def test_one_long_sentence_is_cut_between_words() -> None:
    part = cut_beginning("wording " * 500, 50)
    assert part is not None
    assert set(part.split()) == {"wording", "…"}
    assert cut_beginning("x" * 5_000, 50) is None


def test_code_that_is_cut_is_closed() -> None:
    part = select_best_part("product-context.md", "# T\n\n```js\n" + "call();\n" * 500 + "```\n", 100)
    assert part is not None
    assert part.startswith("# T\n\n```js\ncall();\n")
    assert part.endswith("call();\n```\n…\n")


def test_every_section_has_its_turn() -> None:
    many = "".join(f"- item {n}\n" for n in range(5_000))
    text = f"# T\n\nIntro.\n\n## A\n\n{many}\n## B\n\nProse.\n\n## C\n\n- last\n"
    part = select_best_part("active-context.md", text, 150)
    assert part is not None
    for said in ("Intro.", "- item 0\n", "- item 4\n", "Prose.", "- last\n"):
        assert said in part
    assert can_fit(part, 150)
    assert count_text_tokens(part) > 120


def test_lines_are_left_out_but_never_moved() -> None:
    text = "---\ntitle: x\n---\n# T\n\n- a\nlazy\n\n> quoted\n> more\n\n---\n\n## S\n\n* b\n  * c\n"
    assert select_best_part("active-context.md", text, 1_000) == text
