from pathlib import Path

from everkept.engines.standby.failover import MARK, Acquaintance


def test_it_is_made_once_and_stays(tmp_path: Path) -> None:
    folder = tmp_path / "standby" / "key"
    first = Acquaintance(folder)
    assert not first.is_made
    assert not folder.exists()
    first.make()
    assert first.is_made
    assert Acquaintance(folder).is_made


def test_where_it_cannot_be_noted_it_is_known_for_as_long_as_the_program_runs(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    acquaintance = Acquaintance(tmp_path / "file")
    acquaintance.make()
    assert acquaintance.is_made
    assert not Acquaintance(tmp_path / "file").is_made
    assert not (tmp_path / MARK).exists()
