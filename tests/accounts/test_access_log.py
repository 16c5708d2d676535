import errno
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.accounts import access_log
from everkept.accounts.access_log import (
    BEGUN_OUTCOME,
    FLOOD_LINES,
    LISTENING_OUTCOME,
    MAX_IDS,
    MAX_NAME_CHARACTERS,
    AccessLog,
    LoggedCall,
    clip_ids,
    clip_name,
    find_calls,
    log_owner_command,
)
from everkept.core.locks import FileLock
from everkept.errors import Conflict, StorageFull, Unavailable
from everkept.values import replace
from records import DAY_ONE, MILLISECOND

READ = LoggedCall("1", DAY_ONE, "anna", False, "test 1", "192.0.2.1", "search_nodes", "p", 3, "ok")
HERS = Path("accounts", "user-anna", "access.jsonl")  # the file of anna's lines
TEXTS = st.text(st.characters(), max_size=20)


def calls(written: AccessLog) -> list[str]:
    found = [access for access in written.read() if access is not None]
    return [access.call for access in found]


@given(what=TEXTS, client=TEXTS, ids=st.lists(TEXTS, max_size=3))
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, what: str, client: str, ids: list[str]
) -> None:
    written = AccessLog(tmp_path_factory.mktemp("log"))
    access = replace(READ, what=what, client=client, ids=tuple(ids), count=len(ids))
    written.write(access)
    assert list(written.read()) == [access]


def test_nothing_is_there_before_the_first_call(tmp_path: Path) -> None:
    assert list(AccessLog(tmp_path / "none").read()) == []
    assert not (tmp_path / "none").exists()


def test_only_the_user_of_the_server_may_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "access"
    AccessLog(folder).write(READ)
    rights = [stat.S_IMODE(path.stat().st_mode) for path in (folder, (folder / HERS).parent, folder / HERS)]
    assert rights == [0o700, 0o700, 0o600] or os.name != "posix"


def test_files_are_turned_over_and_the_oldest_go(tmp_path: Path) -> None:
    written = AccessLog(tmp_path, most_bytes=1_000, most_files=3)
    for number in range(100):
        written.write(replace(READ, call=str(number), at=DAY_ONE + number * MILLISECOND))
    files = list(tmp_path.rglob("*.jsonl"))
    assert len(files) <= 3
    assert sum(path.stat().st_size for path in files) < 3 * 1_500
    left = calls(written)
    assert left == [str(number) for number in range(100 - len(left), 100)]
    assert len(left) > 4


def test_several_writers_lose_nothing_of_each_other(tmp_path: Path) -> None:
    def write(writer: int) -> None:
        own = AccessLog(tmp_path, most_bytes=5_000, most_files=10_000)
        for number in range(100):
            own.write(replace(READ, call=f"{writer}-{number}"))

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = {f"{writer}-{number}" for writer in range(4) for number in range(100)}
    assert sorted(calls(AccessLog(tmp_path))) == sorted(everything)


def test_half_a_line_spoils_no_other(tmp_path: Path) -> None:
    written = AccessLog(tmp_path)
    written.write(READ)
    with (tmp_path / HERS).open("a", encoding="utf-8") as file:
        file.write('{"at": "2026')
    written.write(replace(READ, call="2"))
    found, broken, _ = find_calls(written, most=10)
    assert ([access.call for access in found], broken) == (["1", "2"], 1)


@pytest.mark.parametrize("line", ["[]", "3", '{"call": 1}', "null", '"text"'])
def test_what_is_no_line_of_ours_is_counted_as_broken(tmp_path: Path, line: str) -> None:
    (tmp_path / "access.jsonl").write_text(f"{line}\n\n", encoding="utf-8")
    assert find_calls(AccessLog(tmp_path), most=10) == ([], 1, 0)


def test_what_cannot_be_written_is_an_error_that_does_not_say_where(tmp_path: Path) -> None:
    place = tmp_path / "taken"
    place.write_text("no folder", encoding="utf-8")
    with pytest.raises(Unavailable) as caught:
        AccessLog(place).write(READ)
    assert str(tmp_path) not in json.dumps(caught.value.to_envelope())


def test_a_disk_that_is_full_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.write
    monkeypatch.setattr(os, "write", lambda file, data: whole(file, data[: len(data) // 2]))
    with pytest.raises(StorageFull) as caught:
        AccessLog(tmp_path).write(READ)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC


def test_calls_are_found_by_user_project_and_time(tmp_path: Path) -> None:
    written = AccessLog(tmp_path)
    later = DAY_ONE + 10 * MILLISECOND
    for access in (
        replace(READ, call="1"),
        replace(READ, call="2", user="ben", at=DAY_ONE + MILLISECOND),
        replace(READ, call="3", project="q", project_id="7", at=DAY_ONE + 2 * MILLISECOND),
        replace(READ, call="4", at=later),
    ):
        written.write(access)

    def found(most: int = 10, **wanted: Any) -> list[str]:
        return [access.call for access in find_calls(written, most=most, **wanted)[0]]

    assert found() == ["1", "2", "3", "4"]
    assert found(user="ben") == ["2"]
    assert found(project="q") == found(project="7") == ["3"]
    assert found(since=later) == ["4"]
    assert found(most=2) == ["3", "4"]


def test_a_call_that_changed_something_is_shown_once_as_it_ended(tmp_path: Path) -> None:
    written = AccessLog(tmp_path)
    written.write(replace(READ, outcome=BEGUN_OUTCOME))
    written.write(replace(READ, call="2", outcome=BEGUN_OUTCOME))
    written.write(replace(READ, outcome="ok", count=1, ids=("a",)))
    found = find_calls(written, most=10).calls
    assert [(access.call, access.outcome) for access in found] == [("1", "ok"), ("2", BEGUN_OUTCOME)]


def test_a_line_that_was_written_before_projects_had_ids_in_it_is_read(tmp_path: Path) -> None:
    fields = READ.as_json()
    del fields["project_id"]
    (tmp_path / "access.jsonl").write_text(json.dumps(fields) + "\n", encoding="utf-8")
    assert list(AccessLog(tmp_path).read()) == [READ]


@pytest.mark.parametrize("text", ["x" * 10_000, "\U0001f375" * 10_000, "\\" * 10_000])
def test_whatever_a_caller_names_a_line_stays_short(tmp_path: Path, text: str) -> None:
    name = clip_name(text) or ""
    ids = clip_ids(f"{number} {text}" for number in range(2 * MAX_IDS))
    long = replace(READ, what=name, project=name, project_id=name, client=text[:MAX_NAME_CHARACTERS], ids=ids)
    AccessLog(tmp_path).write(long)
    assert len(ids) == MAX_IDS
    assert (tmp_path / HERS).stat().st_size < 100_000


def test_a_line_waits_for_whoever_is_writing(tmp_path: Path) -> None:
    AccessLog(tmp_path).write(READ)
    lock = FileLock(tmp_path / "access.lock")
    assert lock.take()
    writing = threading.Thread(target=AccessLog(tmp_path).write, args=(READ,))
    writing.start()
    writing.join(0.05)
    assert writing.is_alive()
    assert calls(AccessLog(tmp_path)) == ["1"]
    lock.release()
    writing.join(20)
    assert calls(AccessLog(tmp_path)) == ["1", "1"]


def test_who_never_gets_a_turn_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_log, "LOCK_SECONDS", 0.01)
    AccessLog(tmp_path).write(READ)
    lock = FileLock(tmp_path / "access.lock")
    assert lock.take()
    with pytest.raises(Unavailable):
        AccessLog(tmp_path).write(READ)
    lock.release()
    assert calls(AccessLog(tmp_path)) == ["1"]


def test_it_is_known_since_when_lines_are_kept_once_some_are_gone(tmp_path: Path) -> None:
    written = AccessLog(tmp_path, most_bytes=500, most_files=3)
    written.write(READ)
    assert written.find_cutoff() is None
    for number in range(1, 20):
        written.write(replace(READ, at=DAY_ONE + number * MILLISECOND))
    oldest = next(access for access in written.read() if access is not None)
    assert written.find_cutoff() == oldest.at > DAY_ONE


def test_calls_that_may_have_touched_a_record_are_counted(tmp_path: Path) -> None:
    written = AccessLog(tmp_path)
    ids = [str(number) for number in range(MAX_IDS + 1)]
    named = clip_ids(ids)
    written.write(replace(READ, count=len(ids), ids=named))
    written.write(replace(READ, call="2", outcome=BEGUN_OUTCOME))  # and then the server was killed
    written.write(replace(READ, call="3", outcome=BEGUN_OUTCOME))
    written.write(replace(READ, call="3", count=1, ids=("other",)))
    written.write(replace(READ, call="4", user="ben", count=2, ids=(ids[-1], "other")))

    def found(**wanted: Any) -> tuple[list[str], int]:
        calls, _, unsure = find_calls(written, most=10, **wanted)
        return [access.call for access in calls], unsure

    assert found(record=ids[-1]) == (["4"], 2)
    assert found(record=ids[0]) == (["1"], 1)
    assert found(record=ids[-1], user="ben") == (["4"], 0)
    assert found() == (["1", "2", "3", "4"], 0)


def test_a_stream_that_is_open_touches_no_record(tmp_path: Path) -> None:
    written = AccessLog(tmp_path)
    written.write(replace(READ, outcome=LISTENING_OUTCOME, count=2))
    written.write(replace(READ, call="2", outcome="ok", count=2))
    assert find_calls(written, most=10, record="1") == ([], 0, 0)


def noted(written: AccessLog) -> list[tuple[str, str | None, str, tuple[str, ...]]]:
    found = [access for access in written.read() if access is not None]
    assert {access.user for access in found} == {"owner"}
    assert len({access.call for access in found}) == 1
    return [(each.what, each.about, each.outcome, each.ids) for each in found]


def test_what_the_owner_does_is_noted_before_and_after(tmp_path: Path) -> None:
    written = AccessLog(tmp_path)
    with log_owner_command(written, lambda: DAY_ONE, "account remove", "anna", ids=["p"]) as ids:
        assert noted(written) == [("account remove", "anna", BEGUN_OUTCOME, ("p",))]
        ids.append("q")
    assert noted(written)[1:] == [("account remove", "anna", "ok", ("p", "q"))]


def test_what_the_owner_could_not_do_is_noted_with_its_code(tmp_path: Path) -> None:
    written = AccessLog(tmp_path)
    with pytest.raises(Conflict), log_owner_command(written, lambda: DAY_ONE, "grant read", "anna"):
        raise Conflict("It is hers.")
    assert [outcome for _, _, outcome, _ in noted(written)] == [BEGUN_OUTCOME, "conflict"]


def test_what_the_owner_began_and_was_cut_short_in_is_noted_as_begun(tmp_path: Path) -> None:
    written = AccessLog(tmp_path)
    with pytest.raises(KeyboardInterrupt), log_owner_command(written, lambda: DAY_ONE, "account remove", "anna"):
        raise KeyboardInterrupt
    assert [outcome for _, _, outcome, _ in noted(written)] == [BEGUN_OUTCOME]


def test_of_many_that_the_owner_touched_all_are_counted(tmp_path: Path) -> None:
    written = AccessLog(tmp_path)
    ids = [str(number) for number in range(MAX_IDS + 1)]
    with log_owner_command(written, lambda: DAY_ONE, "account remove", "anna", ids=ids):
        pass
    ended = find_calls(written, most=1).calls[0]
    assert (ended.count, len(ended.ids)) == (MAX_IDS + 1, MAX_IDS)


def test_no_account_can_push_out_the_lines_of_others(tmp_path: Path) -> None:
    written = AccessLog(tmp_path, most_bytes=1_000, most_files=3)
    with log_owner_command(written, lambda: DAY_ONE, "grant read", "anna"):
        pass
    written.write(replace(READ, call="ben's", user="ben"))
    for number in range(300):
        written.write(replace(READ, call=str(number), at=DAY_ONE + number * 1_000_000))
    assert [access.what for access in find_calls(written, user="owner", most=10).calls] == ["grant read"]
    assert [access.call for access in find_calls(written, user="ben", most=10).calls] == ["ben's"]
    # The grant is about anna, so it is among her lines too.
    hers = find_calls(written, user="anna", most=1000).calls
    assert (hers[0].what, hers[-1].call) == ("grant read", "299")
    assert 2 < len(hers) < 50
    assert written.find_cutoff("anna") == hers[1].at
    assert written.find_cutoff("ben") is None


def test_a_flood_is_one_line_a_minute_that_names_the_records(tmp_path: Path) -> None:
    written = AccessLog(tmp_path)
    for number in range(FLOOD_LINES + 400):
        line = replace(READ, call=str(number), at=DAY_ONE + number, ids=(f"r{number}",), count=1)
        written.write(replace(line, what="read_graph", project="q") if number % 2 else line)
    *single, total = find_calls(written, most=10_000).calls
    assert len(single) == FLOOD_LINES
    assert (total.more, total.what, total.project) == (399, "search_nodes, read_graph", "p, q")
    assert len(total.ids) == total.count == 400
    assert find_calls(written, most=10, record=f"r{FLOOD_LINES + 7}").calls == [total]
    assert find_calls(written, most=10, record="other").unsure == 0
    assert find_calls(written, most=1, project="q").calls == [total]
    # In the next minute lines are single again.
    written.write(replace(READ, call="later", at=DAY_ONE + 60_000_000))
    assert find_calls(written, most=1).calls[0].more is None


def test_a_flood_of_many_records_is_told_to_be_incomplete(tmp_path: Path) -> None:
    written = AccessLog(tmp_path)
    for number in range(FLOOD_LINES + 20):
        ids = tuple(f"{number}-{each}" for each in range(MAX_IDS // 10))
        written.write(replace(READ, call=str(number), what=f"tool {number}", ids=ids, count=len(ids)))
    [total] = find_calls(written, most=1).calls
    assert (total.more, len(total.ids), total.count) == (19, MAX_IDS, 20 * (MAX_IDS // 10))
    assert total.what.endswith("…")
    assert find_calls(written, most=10, record="other").unsure == 1
    assert max(map(len, (tmp_path / HERS).read_bytes().splitlines())) < 50_000


def test_a_change_in_a_flood_is_noted_before_and_after(tmp_path: Path) -> None:
    written = AccessLog(tmp_path)
    for number in range(FLOOD_LINES):
        written.write(replace(READ, call=str(number)))
    for number in range(3):
        written.write(replace(READ, call=f"w{number}", what="store_memory", outcome=BEGUN_OUTCOME))
        assert find_calls(written, most=1, record="other").unsure == 1
        written.write(replace(READ, call=f"w{number}", what="store_memory", count=1, ids=(f"m{number}",)))
        assert find_calls(written, most=1, record="other").unsure == 0
    [total] = find_calls(written, most=1).calls
    assert (total.more, total.outcome, total.ids) == (2, "begun, ok", ("m0", "m1", "m2"))


def test_several_servers_sum_up_into_one_line(tmp_path: Path) -> None:
    servers = [AccessLog(tmp_path) for _ in range(2)]
    for number in range(2 * FLOOD_LINES + 100):
        servers[number % 2].write(replace(READ, call=str(number)))
    found = find_calls(servers[0], most=1000).calls
    assert sum(1 + (access.more or 0) for access in found) == 2 * FLOOD_LINES + 100
    assert len([access for access in found if access.more]) == 1


def test_half_a_line_before_a_sum_spoils_nothing(tmp_path: Path) -> None:
    written = AccessLog(tmp_path)
    for number in range(FLOOD_LINES + 3):
        written.write(replace(READ, call=str(number)))
    with (tmp_path / HERS).open("ab") as file:
        file.write(b'{"at": "2026')
    for number in range(2):
        written.write(replace(READ, call=f"more {number}"))
    found = find_calls(written, most=1000)
    assert (found.broken, [access.more for access in found.calls[-2:]]) == (1, [2, 1])


@pytest.mark.parametrize("user", ["anna", "a.b", ".", "..", "con", "anna."])
def test_every_account_has_a_folder_inside_the_log(tmp_path: Path, user: str) -> None:
    written = AccessLog(tmp_path)
    written.write(replace(READ, user=user))
    assert [access.call for access in find_calls(written, user=user, most=10).calls] == ["1"]
    assert written.get_folder(user).parent == tmp_path / "accounts"
    assert not written.get_folder(user).name.endswith(".")
