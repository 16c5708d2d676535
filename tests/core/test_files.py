import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.files import MAX_NAME_BYTES, FileInfo, is_name, parse_path
from everkept.errors import Refused
from path_attacks import ATTACKS


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("", ()),
        ("progress.md", ("progress.md",)),
        ("graph/graph.jsonl", ("graph", "graph.jsonl")),
        (".mcprules-code", (".mcprules-code",)),
        ("...x", ("...x",)),
        ("日本語 🎉/é.md", ("日本語 🎉", "é.md")),
        ("会議／メモ：1.md", ("会議／メモ：1.md",)),
        ("👨\u200d👩\u200d👧.md", ("👨\u200d👩\u200d👧.md",)),
        ("console.md", ("console.md",)),
        ("com10.md", ("com10.md",)),
        ("~", ("~",)),
        ("-rf", ("-rf",)),
        ("x" * MAX_NAME_BYTES, ("x" * MAX_NAME_BYTES,)),
    ],
)
def test_a_path_has_parts(path: str, parts: tuple[str, ...]) -> None:
    assert parse_path(path) == parts


@pytest.mark.parametrize("path", ATTACKS, ids=ascii)
def test_a_path_that_leads_out_or_breaks_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_path(path)
    assert str(caught.value).isprintable()
    assert len(caught.value.message) < 800


@given(st.text(max_size=40))
def test_every_part_of_a_path_is_a_name_or_the_path_is_refused(path: str) -> None:
    try:
        parts = parse_path(path)
    except Refused:
        assert not all(is_name(part) for part in path.split("/"))
    else:
        assert "/".join(parts) == path
        assert all(is_name(part) for part in parts)


DEVICES = ["con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in "1289")]
STEMS = st.sampled_from([*DEVICES, "co", "com0", "com10", "lpt", "cons", "x", "", ".", "-"])


@given(STEMS, st.booleans(), st.sampled_from(["", " ", "  "]), st.sampled_from(["", ".", ".md"]))
def test_a_device_is_no_name_in_whatever_spelling(stem: str, upper: bool, gap: str, ending: str) -> None:
    name = (stem.upper() if upper else stem) + gap + ending
    is_bad = stem in DEVICES or name in ("", ".", "..") or name[-1] in " ."
    assert is_name(name) == (not is_bad)


def test_a_file_has_the_last_part_of_its_path_as_its_name() -> None:
    assert FileInfo("graph/graph.md", 0, 0).name == "graph.md"
    assert FileInfo("progress.md", 0, 0).name == "progress.md"
