from pathlib import Path

import pytest

from everkept.care.check_context import get_sqlite_care
from everkept.errors import Refused
from everkept.settings import read_settings
from everkept.values import replace

TEAM = "postgresql://db.example.com/team"


def test_an_engine_without_files_has_nothing_to_care_for(tmp_path: Path) -> None:
    settings = read_settings({"data_dir": tmp_path, "config": "none"}, {})
    assert get_sqlite_care(settings).folder == tmp_path
    with pytest.raises(Refused, match="All data is in memory"):
        get_sqlite_care(replace(settings, deployment_mode="embedded-memory"))


@pytest.mark.parametrize(
    ("more", "command"),
    [
        (
            {"database_user": "postgres"},
            f"pg_dump --schema=memory --format=custom --file=memory.dump --username=postgres {TEAM}",
        ),
        (
            {"namespace": "Our-own", "database_user": "anna"},
            f"pg_dump '--schema=\"Our-own\"' --format=custom --file=Our-own.dump --username=anna {TEAM}",
        ),
    ],
)
def test_postgresql_is_copied_by_its_own_means(tmp_path: Path, more: dict[str, str], command: str) -> None:
    flags = {"data_dir": tmp_path, "config": "none", "database_url": TEAM, **more}
    with pytest.raises(Refused, match="All data is in PostgreSQL") as caught:
        get_sqlite_care(read_settings(flags, {"EVERKEPT_DATABASE_PASSWORD": "hunter2"}))
    assert "hunter2" not in f"{caught.value} {caught.value.hint}"
    assert f"`{command}`" in (caught.value.hint or "")
