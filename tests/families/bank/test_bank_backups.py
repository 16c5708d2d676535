"""Names of backups, and the list of what one holds."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.times import format_iso, parse_time
from everkept.families.bank.bank_backups import (
    BackupManifest,
    FileChecksum,
    decode_manifest,
    format_backup_name,
    format_partial_name,
    is_backup,
    is_partial,
    parse_backup_time,
)

MILLISECONDS = st.integers(0, 4_000_000_000_000).map(lambda count: count * 1_000)


def test_a_name_is_written_as_the_public_server_writes_it() -> None:
    at = parse_time("2026-02-13T10:30:00Z")
    assert format_backup_name(at) == "memory-bank-backup-2026-02-13T10-30-00-000Z"


@given(MILLISECONDS)
def test_a_name_tells_its_time(at: int) -> None:
    assert is_backup(format_backup_name(at))
    assert parse_backup_time(format_backup_name(at)) == at


@given(MILLISECONDS)
def test_a_partial_one_is_no_backup(at: int) -> None:
    assert is_partial(format_partial_name(format_backup_name(at)))
    assert not is_backup(format_partial_name(format_backup_name(at)))
    assert not is_partial(format_backup_name(at))


@pytest.mark.parametrize(
    ("name", "time"),
    [
        ("memory-bank-backup-2026-02-13T10-30-00-250Z", "2026-02-13T10:30:00.250Z"),
        ("memory-bank-backup-2026-02-13T10-30-00-250", "2026-02-13T10:30:00.250Z"),
        ("memory-bank-backup-2026-02-13T10-30-00", "2026-02-13T10:30:00.000Z"),
        ("memory-bank-backup-2026-02-13T10-30", "2026-02-13T10:30:00.000Z"),
        ("memory-bank-backup-2026-02-13T99-99-99", None),
        ("memory-bank-backup-2026-99-13T10-30-00", None),
        ("memory-bank-backup-2026-02-13T--", None),
        ("memory-bank-backup-2026-02-13T10-30-00-1-2", None),
        ("notes", None),
    ],
)
def test_names_of_other_servers_tell_their_time_too(name: str, time: str | None) -> None:
    found = parse_backup_time(name)
    assert (format_iso(found) if found is not None else None) == time


@given(MILLISECONDS, st.dictionaries(st.from_regex(r"[b-zé]{1,9}x(/[d-k]{2,9})?", fullmatch=True), st.binary()))
def test_a_manifest_survives_the_way_there_and_back(at: int, files: dict[str, bytes]) -> None:
    manifest = BackupManifest(
        "/home/ada/bänk", at, {path: FileChecksum.from_data(data) for path, data in files.items()}
    )
    assert decode_manifest(manifest.encode()) == manifest
    assert manifest.size == sum(map(len, files.values()))


WHOLE = {
    "format": 1,
    "bank": "/bank",
    "createdAt": "2026-02-13T10:30:00.000Z",
    "files": {"a.md": {"size": 1, "sha256": "00"}},
}


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"format": 1}',
        json.dumps(WHOLE).encode()[:-1],
        json.dumps(WHOLE | {"format": 2}).encode(),
        json.dumps(WHOLE | {"createdAt": "yesterday"}).encode(),
        json.dumps(WHOLE | {"files": ["a.md"]}).encode(),
        json.dumps(WHOLE | {"files": {"a.md": 1}}).encode(),
        json.dumps(WHOLE | {"files": {"a.md": {"size": "x", "sha256": ""}}}).encode(),
        json.dumps(WHOLE | {"files": {"../a.md": {"size": 1, "sha256": ""}}}).encode(),
        json.dumps(WHOLE | {"files": {"": {"size": 1, "sha256": ""}}}).encode(),
    ],
)
def test_what_is_no_manifest_is_a_value_error_with_a_reason(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_manifest(damaged)


@given(st.binary())
def test_no_bytes_break_the_reading_of_a_manifest(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_manifest(data)
