import os
import stat
from pathlib import Path

import pytest

from everkept.clients.own_command import LAUNCHERS_FILE, read_launchers, remember_launcher


def test_launchers_are_known_once_they_were_remembered(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert read_launchers(data) == frozenset()
    for launcher in ("/old/run", "/new/run", "/old/run"):
        remember_launcher(data, launcher)
    assert read_launchers(data) == {"/old/run", "/new/run"}
    if os.name == "posix":
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        assert stat.S_IMODE((data / LAUNCHERS_FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[3, null]", b"\xff"])
def test_a_list_that_cannot_be_read_knows_none_and_can_be_written_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LAUNCHERS_FILE).write_bytes(content)
    assert read_launchers(tmp_path) == frozenset()
    remember_launcher(tmp_path, "/new/run")
    assert read_launchers(tmp_path) == {"/new/run"}
