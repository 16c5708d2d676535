import json
from pathlib import Path
from typing import Any

import pytest

from everkept.core.records import Record
from everkept.hooks.session_start import handle_session_start
from everkept.values import replace
from hook_session import DAY, NOW, SESSION, Desk, here
from records import DAY_ONE, memory

HEADING = "### Earlier in This Session\n"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def transcript(desk: Desk, *said: tuple[str, str]) -> Path:
    file = desk.root / "transcript.jsonl"
    records = [
        {
            "type": who,
            "sessionId": desk.session,
            "timestamp": NOW // 1_000_000 - 60,
            "message": {"role": who, "content": [{"type": "text", "text": text}]},
        }
        for who, text in said
    ]
    file.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return file


def before(desk: Desk, file: Path | None, **settings: Any) -> list[str]:
    event = desk.event("SessionStart", source="compact", transcript=file)
    answer = handle_session_start(event, desk.around(**settings))
    text = "" if answer is None else answer.context
    below = text.partition(HEADING)[2].split("\n\n")[0].splitlines()
    return [line for line in below if line.startswith("- ")]


def test_what_was_decided_and_asked_is_known_before_the_history_has_it(desk: Desk) -> None:
    file = transcript(
        desk,
        ("user", "Which store shall the carts have?"),
        ("assistant", "Redis or files. We decided to use Redis. It is there already."),
        ("user", "ok"),
        ("user", "Now write the migration"),
    )
    assert before(desk, file) == [
        "- We decided to use Redis. (decided by the assistant; 1 minute ago)",
        "- Now write the migration (asked by the user; 1 minute ago)",
        "- Which store shall the carts have? (asked by the user; 1 minute ago)",
    ]


def test_nothing_need_be_stored_for_that(desk: Desk) -> None:
    file = transcript(desk, ("user", "Let's use eight shards."))
    event = desk.event("SessionStart", source="compact", transcript=file)
    answer = handle_session_start(event, replace(desk.around(), room=None))
    assert answer is not None
    assert "Let's use eight shards." in answer.context


def test_a_decision_that_the_history_has_too_is_told_once(desk: Desk) -> None:
    text = "Both would do. We decided to use Redis."
    desk.stored_of_past(Record("t", "turn", DAY_ONE, DAY_ONE, type="decision", text=text, session=SESSION))
    assert len(before(desk, transcript(desk, ("assistant", text)))) == 1


@pytest.mark.parametrize("mask", [True, False])
def test_a_secret_that_was_said_is_masked(desk: Desk, mask: bool) -> None:
    file = transcript(desk, ("user", "Log in with password=hunter2hunter22 please"))
    (line,) = before(desk, file, mask_secrets=mask)
    assert ("hunter22" in line) != mask


def test_nothing_is_told_of_a_folder_that_is_off(desk: Desk) -> None:
    here(desk.library.create("other", ""))
    file = transcript(desk, ("user", "Let's use eight shards."))
    assert before(desk, file, project="other")
    here(desk.library.set_off("shop", off=True))
    assert before(desk, file, project="other") == []


def test_of_a_command_that_works_again_the_failure_is_not_told(desk: Desk) -> None:
    def noticed(text: str, tag: str, days_ago: int) -> Record:
        at = {"id": f"{tag} {days_ago}", "created_at": NOW - days_ago * DAY}
        return memory(text, session=SESSION, tags=(tag,), facets={"automatic": True}, **at)

    again = "`make` failed and then succeeded, with no file edited in between. It had failed with:"
    desk.stored(
        noticed("`make` failed:\nboom", "failed", 4),
        noticed("`tox` failed:\nboom", "failed", 3),
        noticed(f"{again}\nboom", "fixed", 2),
        noticed("`make` failed:\nbang", "failed", 1),
    )
    told = [line.partition(" (")[0] for line in before(desk, None)]
    assert told == ["- `make` failed: bang", f"- {again} boom", "- `tox` failed: boom"]
