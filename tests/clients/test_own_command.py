import sys
from pathlib import Path

import pytest

from everkept.clients.own_command import (
    build_own_command,
    find_arguments,
    find_option,
    format_shell_line,
    get_command_words,
    get_program,
    is_available,
    is_ours,
    make_startable,
    split_line,
)


def test_a_launcher_is_what_clients_should_start() -> None:
    assert build_own_command("/opt/shop/run", "python") == ("/opt/shop/run",)


def test_without_a_launcher_it_is_an_isolated_module_of_the_interpreter() -> None:
    assert build_own_command(None, "/usr/bin/python3") == ("/usr/bin/python3", "-E", "-P", "-m", "everkept")


def test_a_batch_file_of_windows_needs_its_shell() -> None:
    assert make_startable(["C:\\shop\\run.cmd"], "win32") == ("cmd", "/c", "C:\\shop\\run.cmd")
    assert make_startable(["C:\\shop\\everkept.exe"], "win32") == ("C:\\shop\\everkept.exe",)
    assert make_startable(["/shop/run.cmd"], "linux") == ("/shop/run.cmd",)


def test_a_line_for_the_shell_is_read_back_as_the_words_that_it_was_made_of() -> None:
    words = ["/opt/my tools/everkept", "hook", "SessionEnd", "--data-dir", "/a'b $c"]
    assert list(split_line(format_shell_line(words, "linux"))) == words
    line = format_shell_line(["C:\\Users\\ada\\everkept.exe", "hook", "SessionEnd"], "win32")
    assert line == "C:/Users/ada/everkept.exe hook SessionEnd"


@pytest.mark.parametrize(
    "line",
    [
        "/usr/bin/everkept hook SessionStart",
        "'/my tools/everkept' hook SessionStart --data-dir /x",
        '"C:\\Program Files\\everkept.exe" hook SessionStart',
        "C:\\tools\\everkept.exe hook SessionStart",
        "/usr/bin/python3 -m everkept hook SessionStart",
        "python -m everkept hook SessionStart",
        "python -E -P -m everkept hook SessionStart",
        "python -I -m everkept hook SessionStart",
        "everkept hook SessionStart",
        "C:/tools/everkept.cmd hook SessionStart",
        "cmd /c C:/tools/everkept.cmd hook SessionStart",
        "uvx everkept hook SessionStart",
        "uv run everkept hook SessionStart",
    ],
)
def test_our_program_is_known_however_it_is_started(line: str) -> None:
    assert is_ours(split_line(line), "hook")
    assert not is_ours(split_line(line), "serve")


@pytest.mark.parametrize(
    "line",
    [
        "npm run hook SessionStart",
        "./run hook SessionStart",
        "/opt/run hook SessionStart",
        "./scripts/run.sh hook SessionStart",
        "everkept.sh hook SessionStart",
        "/everkept/run hook SessionStart",
        "echo everkept hook SessionStart",
        "cmd /c echo everkept hook SessionStart",
        "docker run everkept hook SessionStart",
        "everkept-other hook SessionStart",
        "echo everkept",
        "everkept remember hook",
        "hook everkept",
        "python -E everkept hook SessionStart",
        "python -c -m everkept hook SessionStart",
        "unclosed 'quote everkept hook",
        "",
    ],
)
def test_others_are_left_to_others(line: str) -> None:
    assert not is_ours(split_line(line), "hook")


@pytest.mark.parametrize("name", ["run", "run.cmd"])
def test_a_launcher_is_ours_in_a_checkout_or_where_it_is_known(tmp_path: Path, name: str) -> None:
    launcher = str(tmp_path / name)
    words = [launcher, "hook", "SessionStart", "--project", "shop"]
    assert not is_ours(words, "hook")
    assert find_arguments(words, "hook", [launcher]) == ("SessionStart", "--project", "shop")
    assert is_ours(["cmd", "/c", *words], "hook", [launcher])
    source = tmp_path / "src" / "everkept"
    source.mkdir(parents=True)
    assert not is_ours(words, "hook")
    (source / "__main__.py").touch()
    assert is_ours(words, "hook")
    assert not is_ours([str(tmp_path / "run.sh"), "hook"], "hook")


def test_a_launcher_of_windows_is_known_with_either_slash() -> None:
    line = format_shell_line(["C:\\shop\\run.cmd", "hook", "SessionStart"], "win32")
    assert is_ours(split_line(line), "hook", ["C:\\shop\\run.cmd"])
    plain = "C:\\shop\\run.cmd hook SessionStart"
    assert is_ours(split_line(plain, ["C:/shop/run.cmd"]), "hook", ["C:/shop/run.cmd"])


def test_an_entry_of_any_shape_has_words_or_none() -> None:
    assert get_command_words({"command": "a", "args": ["b", 3]}) == ("a", "b", "3")
    assert get_command_words({"command": "a", "args": "b"}) == get_command_words({"command": "a"}) == ("a",)
    for entry in ({"url": "https://x.example"}, {"command": 3}, None, [], "a"):
        assert get_command_words(entry) == ()


def test_an_option_is_found_in_both_ways_of_writing_it() -> None:
    assert find_option(["serve", "--data-dir", "/x", "--project=shop"], "--data-dir") == "/x"
    assert find_option(["serve", "--project=shop"], "--project") == "shop"
    assert find_option(["serve", "--project"], "--project") is None


def test_what_must_be_there_is_the_program_behind_the_shell_of_windows() -> None:
    assert get_program(["cmd", "/c", "C:\\run.cmd", "serve"]) == "C:\\run.cmd"
    assert get_program(["everkept", "serve"]) == "everkept"


def test_a_program_is_there_as_a_file_or_on_the_search_path(tmp_path: Path) -> None:
    assert is_available(sys.executable)
    assert not is_available(str(tmp_path / "everkept"))
    assert not is_available(str(tmp_path))
    assert not is_available("no-program-has-this-name")
    assert not is_available("a\0b/c")
