from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from everkept.core.files import FileStore
from everkept.core.sessions import Session
from everkept.errors import BankNotFound, InvalidInput, Refused, Unavailable
from everkept.families.bank.banks import Banks, StoreRegistry
from everkept.families.bank.guidance_tools import UPDATE_ENDED_MESSAGE, UPDATE_STARTED_MESSAGE, ModeTools
from everkept.families.bank.model import BankOptions
from everkept.files.resolver import FileStoreResolver
from memory_bank import Banking, bank_in

RULES = "mode: debug\ninstructions:\n  general: [Look twice.]\n  umb: {trigger: '^sync$'}\n"


@pytest.fixture
async def bank(tmp_path: Path) -> AsyncGenerator[Banking, None]:
    async with bank_in(tmp_path) as banking:
        banking.offer(ModeTools(banking.banks))
        yield banking


async def test_the_mode_is_code_until_another_is_chosen(bank: Banking) -> None:
    assert (await bank.text("get_current_mode")).splitlines()[:3] == [
        "Current mode: code",
        "Memory Bank status: ACTIVE",
        "UMB mode active: No",
    ]
    answer = await bank.result("switch_mode", mode="architect")
    assert answer.text.splitlines()[0] == "Successfully switched to mode architect."
    assert answer.facts["mode"] == "architect"
    assert answer.facts["tools"][0] == "log_decision"
    assert answer.facts["instructions"]
    assert bank.session.mode == "architect"
    assert (await bank.text("switch_mode")).startswith(
        "Current mode: architect\nMemory Bank status: ACTIVE\nUMB mode active: No\n"
    )


@pytest.mark.parametrize("tool", ["get_current_mode", "switch_mode"])
async def test_the_text_tells_what_to_do_and_with_which_tools(bank: Banking, tool: str) -> None:
    arguments = {"mode": "code"} if tool == "switch_mode" else {}
    answer = await bank.result(tool, **arguments)
    for line in answer.facts["instructions"]:
        assert f"\n- {line}\n" in answer.text
    assert "\nTypical tools: track_progress, add_progress_entry, " in answer.text
    assert len(answer.text) < 800


async def test_only_tools_that_are_offered_are_recommended(bank: Banking) -> None:
    others = ModeTools(bank.banks).list_tools()
    bank.offer(ModeTools(bank.banks, lambda: others))
    answer = await bank.result("switch_mode", mode="architect")
    assert answer.facts["tools"] == []
    assert "Typical tools" not in answer.text
    assert "log_decision" not in answer.text
    assert "Design before you code" in answer.text


async def test_an_unknown_mode_is_refused_with_those_there_are(bank: Banking) -> None:
    with pytest.raises(InvalidInput) as raised:
        await bank("switch_mode", mode="sleep")
    assert raised.value.facts["allowed"] == ["architect", "ask", "code", "debug", "test"]
    assert bank.session.mode is None


async def test_the_mode_of_the_start_holds_and_no_bank_is_needed(tmp_path: Path) -> None:
    options = BankOptions(place=str(tmp_path), mode="test")
    async with bank_in(tmp_path, options=options, made=False) as banking:
        banking.offer(ModeTools(banking.banks))
        assert (await banking.text("get_current_mode")).startswith(
            "Current mode: test\nMemory Bank status: INACTIVE\nUMB mode active: No\n"
        )
        with pytest.raises(BankNotFound):
            await banking("process_umb_command", command="UMB")
        assert banking.session.updates_bank is False


async def test_rules_of_the_project_are_told(bank: Banking) -> None:
    (bank.home / ".mcprules-debug").write_text(RULES, encoding="utf-8")
    answer = await bank.result("switch_mode", mode="debug")
    assert answer.facts["instructions"] == ["Look twice."]
    assert answer.facts["rulesFile"] == ".mcprules-debug"
    (bank.home / ".mcprules-debug").write_text("mode: ask", encoding="utf-8")
    answer = await bank.result("switch_mode", mode="debug")
    assert "rulesFile" not in answer.facts
    assert ".mcprules-debug is ignored" in answer.text


async def test_an_update_of_the_bank_begins_and_ends(bank: Banking) -> None:
    started = await bank.result("process_umb_command", command="update memory bank, please")
    assert started.text.startswith(f"{UPDATE_STARTED_MESSAGE}\nFiles to update: progress.md, active-context.md")
    assert started.facts["umbActive"] is True
    assert "progress.md" in started.facts["filesToUpdate"]
    assert "\nUMB mode active: Yes\n" in await bank.text("get_current_mode")
    assert await bank.text("complete_umb") == UPDATE_ENDED_MESSAGE
    assert bank.session.updates_bank is False
    with pytest.raises(Refused):
        await bank("complete_umb")


async def test_other_words_begin_nothing(bank: Banking) -> None:
    with pytest.raises(InvalidInput) as raised:
        await bank("process_umb_command", command="what is the number of thumbs?")
    assert str(raised.value) == 'Invalid UMB command. Use "Update Memory Bank" or "UMB".'
    assert bank.session.updates_bank is False


async def test_the_words_may_be_the_projects_own(bank: Banking) -> None:
    (bank.home / ".mcprules-debug").write_text(RULES, encoding="utf-8")
    await bank("switch_mode", mode="debug")
    with pytest.raises(InvalidInput):
        await bank("process_umb_command", command="UMB")
    await bank("process_umb_command", command="Sync")
    assert bank.session.updates_bank is True


async def test_errors_name_the_words_that_count(bank: Banking) -> None:
    own = RULES.replace("'^sync$'", '"\\bsync\\b"')
    (bank.home / ".mcprules-debug").write_text(own, encoding="utf-8")
    await bank("switch_mode", mode="debug")
    with pytest.raises(InvalidInput) as raised:
        await bank("process_umb_command", command="UMB")
    assert raised.value.hint == "Use a command that matches \\bsync\\b, the trigger in .mcprules-debug."
    with pytest.raises(Refused) as refused:
        await bank("complete_umb")
    assert refused.value.hint is not None
    assert refused.value.hint.endswith("Use a command that matches \\bsync\\b, the trigger in .mcprules-debug.")
    await bank("switch_mode", mode="ask")
    with pytest.raises(Refused, match='"Update Memory Bank" or "UMB"'):
        await bank("complete_umb")


async def test_switching_can_begin_and_end_an_update_too(bank: Banking) -> None:
    started = await bank.result("switch_mode", umb=True, mode="ask")
    assert started.text.startswith(UPDATE_STARTED_MESSAGE)
    assert "The mode is still code" in started.facts["note"]
    assert bank.session.mode is None
    assert await bank.text("switch_mode", umb=False) == UPDATE_ENDED_MESSAGE
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
        assert "connection is stateless" in switched.text
        assert switched.facts["mode"] == "ask"
        assert banking.session.mode is None
        started = await banking.result("process_umb_command", command="UMB")
        assert "connection is stateless" in started.facts["note"]
        assert started.facts["umbActive"] is False
        assert "complete_umb" not in started.text
        assert started.facts["instructions"]
        with pytest.raises(Refused):
            await banking("complete_umb")


async def test_sessions_do_not_share_their_mode(bank: Banking) -> None:
    await bank("switch_mode", mode="ask")
    bank.session = Session(client="another")
    assert (await bank("get_current_mode"))["mode"] == "code"


@pytest.mark.parametrize("tool", ["get_current_mode", "switch_mode"])
async def test_a_machine_that_is_off_leaves_the_built_in_rules(tmp_path: Path, tool: str) -> None:
    class Off(FileStoreResolver):
        async def open_folder(self, address: str) -> FileStore:
            raise Unavailable("The host is off.")

    async with bank_in(tmp_path) as banking:
        place = BankOptions(place="ssh://me@example.invalid/project")
        banks = Banks(Off(), StoreRegistry(banking.library), place)
        banking.offer(ModeTools(banks))
        answer = await banking.result(tool, **({"mode": "ask"} if tool == "switch_mode" else {}))
    assert answer.facts["status"] == "INACTIVE"
    assert answer.facts["instructions"]
    (warned,) = answer.facts["warnings"]
    assert warned["code"] == "bank_unreachable"
    assert "The host is off." in answer.text
