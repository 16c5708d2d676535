import sys

import pytest

from everkept.cli.runner import show_tool_progress


async def test_a_word_of_progress_does_not_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with show_tool_progress("Asking") as report:
        assert report is not None
        await report(0.5, 1.0, "half\x1b]0;title\x07\nof it")
    shown = capsys.readouterr().err
    assert "half\ufffd]0;title\ufffd of it" in shown
    assert "\x1b]0;" not in shown
