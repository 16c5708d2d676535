from everkept.care.check_context import CheckContext
from everkept.care.doctor import ACCESS_LOG_CHECK, diagnose


def told(context: CheckContext) -> list[str]:
    return [each.what for each in diagnose(context).findings if each.check == ACCESS_LOG_CHECK]


def test_where_no_account_ever_called_nothing_is_said(context: CheckContext) -> None:
    assert told(context) == []


def test_the_log_is_told_with_its_place_and_size(context: CheckContext) -> None:
    folder = context.folder / "access"
    folder.mkdir()
    for name in ("access.jsonl", "access-00000000000000001-00000000.jsonl"):
        (folder / name).write_bytes(b"x" * 600)
    assert told(context) == [f"2 files (1,200 bytes) in {folder}."]
