"""The gateway's file, as it may lie on a disk."""

from pathlib import Path

import pytest

from everkept.app import gateway_file
from everkept.errors import InvalidInput

GOOD = '{"upstream": {"command": "program", "args": ["$HOME"], "passThrough": true}, "tools": []}'


def test_a_file_is_read_with_what_is_odd_about_it(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    config, warnings = gateway_file.load(path)
    assert list(config.upstreams) == ["upstream"]
    assert [warning.line for warning in warnings] == [1]  # the variable is not replaced


def test_every_problem_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text('{\n"upstream": {"command": 1},\n"tools": {},\n"more": 1\n}', "utf-8")
    with pytest.raises(InvalidInput) as error:
        gateway_file.load(path)
    assert error.value.facts["line"] == 2
    assert [problem["line"] for problem in error.value.facts["problems"]] == [2, 3, 4]
    assert f"{path}, line 2" in error.value.message
    assert "2 more" in error.value.message


@pytest.mark.parametrize(
    ("content", "word"), [(b"\xff\xfe", "UTF-8"), (b" " * (gateway_file.MAX_FILE_BYTES + 1), "bytes"), (b"", "line 1")]
)
def test_what_is_no_such_file_is_refused_by_name(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "tools.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=word) as error:
        gateway_file.load(path)
    assert str(path) in error.value.message


def test_a_folder_and_nothing_at_all_are_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.json", tmp_path / ("x" * 5000)):
        with pytest.raises(InvalidInput) as error:
            gateway_file.load(path)
        assert error.value.facts["file"] == str(path)


def test_a_file_that_is_written_again_is_another(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    assert gateway_file.read_state(path) is None
    path.write_text(GOOD, "utf-8")
    first = gateway_file.read_state(path)
    assert first == gateway_file.read_state(path)
    new = tmp_path / "new.json"
    new.write_text(GOOD, "utf-8")
    new.replace(path)
    assert gateway_file.read_state(path) != first
