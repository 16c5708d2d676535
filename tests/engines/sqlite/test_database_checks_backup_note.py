from pathlib import Path

import pytest

from everkept.core.times import parse_time
from everkept.engines.sqlite.database_checks import find_last_backup, note_backup
from everkept.engines.sqlite.library import SqliteLibrary

AT = "2026-03-01T10:00:00Z"


async def test_the_last_backup_is_known(tmp_path: Path) -> None:
    library = SqliteLibrary(tmp_path)
    await library.create("project", "")
    await library.close()
    assert find_last_backup(tmp_path) is None
    note_backup(tmp_path, tmp_path / "a copy.zip", AT)
    assert find_last_backup(tmp_path) == (tmp_path / "a copy.zip", parse_time(AT))


@pytest.mark.parametrize("content", [b"", b"no database"])
def test_a_damaged_list_of_projects_knows_of_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "_meta.db").write_bytes(content)
    assert find_last_backup(tmp_path) is None
