from pathlib import Path

from everkept.engines.standby.failover import CONTACT_FILE, FirstContactMarker


def test_it_is_made_once_and_stays(tmp_path: Path) -> None:
    folder = tmp_path / "standby" / "key"
    first = FirstContactMarker(folder)
    assert not first.is_present
    assert not folder.exists()
    first.create()
    assert first.is_present
    assert FirstContactMarker(folder).is_present


def test_where_it_cannot_be_noted_it_is_known_for_as_long_as_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    first_contact = FirstContactMarker(tmp_path / "file")
    first_contact.create()
    assert first_contact.is_present
    assert not FirstContactMarker(tmp_path / "file").is_present
    assert not (tmp_path / CONTACT_FILE).exists()
