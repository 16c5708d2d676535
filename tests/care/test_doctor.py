from everkept.care.doctor import ACCESS_LOG_CHECK, diagnose
from everkept.care.findings import CheckContext


def told(patient: CheckContext) -> list[str]:
    return [each.what for each in diagnose(patient).findings if each.check == ACCESS_LOG_CHECK]


def test_where_no_account_ever_called_nothing_is_said(patient: CheckContext) -> None:
    assert told(patient) == []


def test_the_log_is_told_with_its_place_and_size(patient: CheckContext) -> None:
    folder = patient.folder / "access"
    folder.mkdir()
    for name in ("access.jsonl", "access-00000000000000001-00000000.jsonl"):
        (folder / name).write_bytes(b"x" * 600)
    assert told(patient) == [f"2 files with 1,200 bytes in {folder}."]
