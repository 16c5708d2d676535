"""Names of a bank's files: what is refused, what means the same file, how new ones are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.errors import EverkeptError, FileNotFound, InvalidInput, Refused
from everkept.families.bank.banks import (
    check_name,
    check_new_name,
    find_matching,
    find_present,
    find_repeated,
    list_candidates,
    normalize_name,
)
from everkept.families.bank.model import CORE_FILES, LEGACY_NAMES

OUTSIDE = {
    "absolute": "/etc/notes.md",
    "drive": "C:\\notes.md",
    "drive with a slash": "C:/notes.md",
    "drive alone": "C:notes.md",
    "network share": "\\\\host\\share\\notes.md",
    "home": "~/notes.md",
    "above": "../notes.md",
    "above inside": "a/../../notes.md",
    "above with backslash": "..\\notes.md",
    "here": "./notes.md",
    "sub-folder": "graph/graph.md",
    "two slashes": "a//notes.md",
    "trailing slash": "notes.md/",
    "zero byte": "notes\0.md",
    "zero byte before another ending": "notes.md\0.exe",
    "line feed": "notes\n.md",
    "escape": "notes\x1b[31m.md",
    "stream": "notes.md:hidden.md",
    "wildcard": "*.md",
    "no ending": "notes",
    "other ending": "notes.txt",
    "double ending": "notes.md.exe",
    "ending alone": ".md",
    "hidden": ".notes.md",
    "a lock of ours": ".everkept-bank.lock",
    "a file half written": ".progress.md.1a2b3c4d.tmp",
    "trailing dot": "notes.md.",
    "trailing blank": "notes.md ",
    "device": "con.md",
    "device in capitals": "LPT1.json",
    "device with two endings": "nul.tar.md",
    "empty": "",
    "dots": "..",
    "half a character": "notes\ud800.md",
    "too long": "n" * 300 + ".md",
}

LOOK_ALIKES = {
    "zero width": "pro\u200bgress.md",
    "zero-width joiner": "progress\u200d.md",
    "byte order mark": "\ufeffprogress.md",
    "right to left": "progress\u202edm.exe.md",
    "soft hyphen": "pro\u00adgress.md",
    "no-break blank": "my\u00a0notes.md",
    "line separator in disguise": "my\u3000notes.md",
    "full-width letters": "\uff50rogress.md",
    "full-width slash": "..\uff0fnotes.md",
    "full-width dots": "\uff0e\uff0e.md",
    "one-dot leader": "progress\u2024x.md",
    "two-dot leader": "\u2025.md",
    "ligature": "\ufb01le.md",
    "Cyrillic letter": "рrogress.md",
    "Greek letter": "active-cοntext.md",
    "Cyrillic letter in the ending's word": "notes.mԁ.md",
    "private use": "notes\ue000.md",
}


@pytest.mark.parametrize("name", OUTSIDE.values(), ids=OUTSIDE.keys())
def test_a_name_that_is_no_file_of_the_bank_is_refused(name: str) -> None:
    with pytest.raises(Refused):
        check_name(name)


@pytest.mark.parametrize("name", LOOK_ALIKES.values(), ids=LOOK_ALIKES.keys())
def test_no_new_file_gets_a_name_that_looks_like_another(name: str) -> None:
    with pytest.raises(Refused) as caught:
        check_new_name(name)
    assert str(caught.value).isascii()


@pytest.mark.parametrize(
    "name", ["notes.md", "my notes.md", "data.json", "README.md", "Größe.md", "план-api.md", "日本.md"]
)
def test_ordinary_names_are_fine_in_every_language(name: str) -> None:
    assert check_new_name(name) == name


@pytest.mark.parametrize(
    ("given_name", "written"),
    [
        ("activeContext.md", "active-context.md"),
        ("ActiveContext.md", "active-context.md"),
        ("ACTIVECONTEXT.MD", "active-context.md"),
        ("progress.md", "progress.md"),
        ("README.md", "readme.md"),
        ("step2Plan.json", "step2-plan.json"),
        ("Gro\u0308\u00dfe.md", "gr\u00f6\u00dfe.md"),
    ],
)
def test_new_files_are_written_in_kebab_case(given_name: str, written: str) -> None:
    assert normalize_name(given_name) == written


def test_every_old_name_leads_to_the_one_of_today() -> None:
    assert [normalize_name(old) for old in LEGACY_NAMES.values()] == list(LEGACY_NAMES)


def test_of_two_names_of_a_core_file_the_one_of_today_wins() -> None:
    both = ["activeContext.md", "active-context.md"]
    assert [find_matching(both, name) for name in both] == ["active-context.md"] * 2
    assert find_matching(["activeContext.md"], "active-context.md") == "activeContext.md"


def test_a_hand_made_name_is_found_in_any_case() -> None:
    there = ["README.md", "myNotes.md", "Gro\u0308\u00dfe.md"]
    assert find_matching(there, "readme.md") == "README.md"
    assert find_matching(there, "readMe.md") == "README.md"
    assert find_matching(there, "my-notes.md") == "myNotes.md"
    assert find_matching(there, "gr\u00f6\u00dfe.md") == "Gro\u0308\u00dfe.md"
    assert find_matching(there, "other.md") is None


def test_a_name_that_fits_two_files_must_be_given_exactly() -> None:
    there = ["README.md", "Readme.md"]
    assert find_matching(there, "Readme.md") == "Readme.md"
    with pytest.raises(InvalidInput):
        find_matching(there, "readme.md")
    assert find_present(there, ["readme.md"]) == ["readme.md"]


def test_names_are_present_in_whatever_spelling() -> None:
    there = ["Progress.MD", "activeContext.md", "systemPatterns.md", "gro\u0308sse.md", "readMe.md"]
    wanted = [*CORE_FILES, "gr\u00f6sse.md", "read-me.md", "readme.md", "other.md"]
    found = find_present(there, wanted)
    assert found == [name for name in wanted if find_matching(there, name) is not None]
    assert set(wanted) - set(found) == {"product-context.md", "decision-log.md", "other.md"}


def test_two_spellings_of_one_file_are_noticed() -> None:
    assert find_repeated(["a.md", "b.md", "a.md"]) == ("a.md", "a.md")
    assert find_repeated(["activeContext.md", "active-context.md"]) is not None
    assert find_repeated(["README.md", "readme.md"]) is not None
    assert find_repeated(["a.md", "b.md", "a.json"]) is None


@given(st.text(max_size=12).map(lambda text: f"{text}.md"))
def test_what_is_written_under_a_name_is_found_under_it(name: str) -> None:
    try:
        check_new_name(name)
    except Refused:
        return
    written = check_name(normalize_name(name))
    assert find_matching([written, "other.md", *CORE_FILES], name) == written
    assert normalize_name(written) == written
    assert written in list_candidates(name)


def test_a_message_shows_what_cannot_be_seen_in_a_name() -> None:
    turned = "a\u202edm.exe"
    for attempt in (lambda: check_name(turned), lambda: find_matching(["X\u202e.md", "x\u202e.MD"], "x\u202e.mD")):
        with pytest.raises(EverkeptError) as caught:
            attempt()
        assert "\u202e" not in str(caught.value)
        assert "\\u202e" in str(caught.value)
    assert "\\u202e" in str(FileNotFound("a\u202e.md"))
    assert "größe.md" in str(FileNotFound("größe.md"))
