from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from banking import Banking, bank_in
from recollect.core.sessions import Session
from recollect.errors import BankNotFound, InvalidInput, Refused
from recollect.families.bank.mode_tools import ACTIVE_AGAIN, UPDATING, ModeTools
from recollect.families.bank.model import BankOptions

RULES = "mode: debug\ninstructions:\n  general: [Look twice.]\n  umb: {trigger: '^sync$'}\n"


@pytest.fixture
async def bank(tmp_path: Path) -> AsyncGenerator[Banking, None]:
    async with bank_in(tmp_path) as banking:
        banking.offer(ModeTools(banking.banks))
        yield banking


async def test_the_mode_is_code_until_another_is_chosen(bank: Banking) -> None:
    assert await bank.text("get_current_mode") == (
        "Current mode: code\nMemory Bank status: ACTIVE\nUMB mode active: No"
    )
    answer = await bank.result("switch_mode", mode="architect")
    assert answer.text == "Successfully switched to mode architect."
    assert answer.structured["mode"] == "architect"
    assert answer.structured["tools"][0] == "log_decision"
    assert answer.structured["instructions"]
    assert bank.session.mode == "architect"
    assert await bank.text("switch_mode") == (
        "Current mode: architect\nMemory Bank status: ACTIVE\nUMB mode active: No"
    )


async def test_an_unknown_mode_is_refused_with_those_there_are(bank: Banking) -> None:
    with pytest.raises(InvalidInput) as raised:
        await bank("switch_mode", mode="sleep")
    assert raised.value.facts["allowed"] == ["architect", "ask", "code", "debug", "test"]
    assert bank.session.mode is None


async def test_the_mode_of_the_start_holds_and_no_bank_is_needed(tmp_path: Path) -> None:
    options = BankOptions(place=str(tmp_path), mode="test")
    async with bank_in(tmp_path, options=options, made=False) as banking:
        banking.offer(ModeTools(banking.banks))
        assert await banking.text("get_current_mode") == (
            "Current mode: test\nMemory Bank status: INACTIVE\nUMB mode active: No"
        )
        with pytest.raises(BankNotFound):
            await banking("process_umb_command", command="UMB")
        assert banking.session.updates_bank is False


async def test_rules_of_the_project_are_told(bank: Banking) -> None:
    (bank.home / ".mcprules-debug").write_text(RULES, encoding="utf-8")
    answer = await bank.result("switch_mode", mode="debug")
    assert answer.structured["instructions"] == ["Look twice."]
    assert answer.structured["rulesFile"] == ".mcprules-debug"
    (bank.home / ".mcprules-debug").write_text("mode: ask", encoding="utf-8")
    answer = await bank.result("switch_mode", mode="debug")
    assert "rulesFile" not in answer.structured
    assert ".mcprules-debug is ignored" in answer.text


async def test_an_update_of_the_bank_begins_and_ends(bank: Banking) -> None:
    started = await bank.result("process_umb_command", command="update memory bank, please")
    assert started.text.startswith(f"{UPDATING}\nFiles to update: progress.md, active-context.md")
    assert started.structured["umbActive"] is True
    assert "progress.md" in started.structured["filesToUpdate"]
    assert (await bank.text("get_current_mode")).endswith("UMB mode active: Yes")
    assert await bank.text("complete_umb") == ACTIVE_AGAIN
    assert bank.session.updates_bank is False
    with pytest.raises(Refused):
        await bank("complete_umb")


async def test_other_words_begin_nothing(bank: Banking) -> None:
    with pytest.raises(InvalidInput) as raised:
        await bank("process_umb_command", command="what is the number of thumbs?")
    assert raised.value.message == 'Invalid UMB command. Use "Update Memory Bank" or "UMB".'
    assert bank.session.updates_bank is False


async def test_the_words_may_be_the_projects_own(bank: Banking) -> None:
    (bank.home / ".mcprules-debug").write_text(RULES, encoding="utf-8")
    await bank("switch_mode", mode="debug")
    with pytest.raises(InvalidInput):
        await bank("process_umb_command", command="UMB")
    await bank("process_umb_command", command="Sync")
    assert bank.session.updates_bank is True


async def test_switching_can_begin_and_end_an_update_too(bank: Banking) -> None:
    started = await bank.result("switch_mode", umb=True, mode="ask")
    assert started.text.startswith(UPDATING)
    assert "The mode stays code" in started.structured["note"]
    assert bank.session.mode is None
    assert await bank.text("switch_mode", umb=False) == ACTIVE_AGAIN
    with pytest.raises(InvalidInput):
        await bank("switch_mode", umb=True, umbCommand="no")
    with pytest.raises(InvalidInput):
        await bank("switch_mode", umbCommand="UMB")
    with pytest.raises(Refused):
        await bank("switch_mode", umb=False)


async def test_a_connection_without_state_says_that_it_keeps_nothing(tmp_path: Path) -> None:
    async with bank_in(tmp_path, session=Session(stateful=False)) as banking:
        banking.offer(ModeTools(banking.banks))
        switched = await banking.result("switch_mode", mode="ask")
        assert "keeps no state" in switched.text
        assert switched.structured["mode"] == "ask"
        assert banking.session.mode is None
        started = await banking.result("process_umb_command", command="UMB")
        assert "keeps no state" in started.structured["note"]
        assert started.structured["umbActive"] is False
        with pytest.raises(Refused):
            await banking("complete_umb")


async def test_sessions_do_not_share_their_mode(bank: Banking) -> None:
    await bank("switch_mode", mode="ask")
    bank.session = Session(client="another")
    assert (await bank("get_current_mode"))["mode"] == "code"
