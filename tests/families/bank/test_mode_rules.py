import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from everkept.families.bank.mode_rules import BUILT_IN_RULES, MAX_FILE_BYTES, read_rules, write_rules
from everkept.families.bank.model import CORE_FILES, MODES, Mode
from memory_bank import Banking, bank_in

OWN = """\
mode: code
instructions:
  general:
    - Write small functions.
    - Note: a colon makes a pair of it
    - 3
  umb:
    trigger: "\\b(save|umb)\\b"
    instructions: Save it.
  memory_bank:
    files_to_update: [progress.md]
mode_triggers:
  ask:
    - condition: question
"""


@pytest.fixture
async def bank(tmp_path: Path) -> AsyncGenerator[Banking, None]:
    async with bank_in(tmp_path) as banking:
        yield banking


# Each line holds nine of the one before: gigabytes where they are written out.
BILLION = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
MERGED = "a0: &a0 {x: y}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 8))


def put(bank: Banking, name: str, text: str | bytes) -> None:
    data = text.encode("utf-8") if isinstance(text, str) else text
    (bank.home / name).write_bytes(data)


async def test_without_files_the_built_in_rules_hold(bank: Banking) -> None:
    found = await read_rules(bank.bank, "debug")
    assert found.rules == BUILT_IN_RULES["debug"]
    assert found.warnings == []
    assert (await read_rules(None, "ask")).rules == BUILT_IN_RULES["ask"]


def test_built_in_rules_are_there_for_every_mode() -> None:
    assert tuple(BUILT_IN_RULES) == MODES
    for mode, rules in BUILT_IN_RULES.items():
        assert rules.mode == mode
        assert set(rules.files_to_update) <= set(CORE_FILES)
        assert len(set(rules.general)) > 2


async def test_a_projects_own_rules_are_read_from_yaml(bank: Banking) -> None:
    put(bank, ".mcprules-code", OWN)
    found = await read_rules(bank.bank, "code")
    assert found.warnings == []
    assert found.rules.general == ("Write small functions.", "Note: a colon makes a pair of it", "3")
    assert found.rules.trigger == "\b(save|umb)\b"
    assert found.rules.umb == ("Save it.",)
    assert found.rules.files_to_update == ("progress.md",)
    assert found.rules.files_to_read == BUILT_IN_RULES["code"].files_to_read
    assert found.rules.source == ".mcprules-code"


async def test_a_projects_own_rules_are_read_from_json(bank: Banking) -> None:
    rules = {"mode": "ask", "instructions": {"general": ["Answer\tshortly."]}}
    put(bank, ".clinerules-ask", "\ufeff" + json.dumps(rules, indent="\t"))
    found = await read_rules(bank.bank, "ask")
    assert found.rules.general == ("Answer\tshortly.",)
    assert found.rules.source == ".clinerules-ask"
    assert found.rules.trigger is None


async def test_the_newer_name_goes_before_the_older(bank: Banking) -> None:
    put(bank, ".mcprules-code", OWN)
    put(bank, ".clinerules-code", OWN.replace("small", "large"))
    assert (await read_rules(bank.bank, "code")).rules.general[0] == "Write small functions."


@pytest.mark.parametrize(
    "text",
    [
        "mode: ask\ninstructions: {general: [x]}\n",
        "mode: code\n",
        "mode: code\ninstructions: {general: []}\n",
        "mode: code\ninstructions: {general: [[x]]}\n",
        "mode: code\ninstructions: {general: [{a: {b: c}}]}\n",
        "mode: code\ninstructions: [general]\n",
        "mode: code\ninstructions: {general: [x], umb: words}\n",
        "- a list\n",
        "",
        "a: [unclosed\n",
        "a: !!python/object/apply:os.system [ls]\n",
        "a: 2026-99-99\n",
        BILLION,
        MERGED,
        "mode: code\ninstructions: {general: [x], <<: {umb: {}}}\n",
        "mode: &m code\ninstructions: {general: [x]}\n",
        "mode: code\ninstructions: {general: [x], umb: {trigger: [x]}}\n",
        "mode: [code]\ninstructions: {general: [x]}\n",
        '{"mode": {"code": 1}, "instructions": {"general": ["x"]}}',
        '{"mode": "code", "instructions": {"general": ["x"], "umb": {"trigger": 7}}}',
        "- " * 30_000,
        "? " * 30_000,
        "mode: code\ninstructions: {general: [[" + "1:" * 30_000 + "1]]}\n",
        "{" * 5_000,
        "[" * 5_000,
        "mode: code\ninstructions:\n  general: [" + ", ".join(["x"] * 1_000) + "]\n",
        "mode: code\ninstructions:\n  general: [" + "x" * 6_000 + "]\n",
        b"\xff\xfe\x00",
        b"x" * (MAX_FILE_BYTES + 1),
    ],
)
async def test_a_broken_file_is_passed_over_with_the_reason(bank: Banking, text: str | bytes) -> None:
    put(bank, ".mcprules-code", text)
    found = await read_rules(bank.bank, "code")
    assert found.rules == BUILT_IN_RULES["code"]
    assert [warned.code for warned in found.warnings] == ["rules_ignored"]
    assert found.warnings[0].message.startswith(".mcprules-code is ignored: ")
    put(bank, ".clinerules-code", OWN)
    second = await read_rules(bank.bank, "code")
    assert second.rules.source == ".clinerules-code"
    assert len(second.warnings) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty."),
        ("# only a comment\n", "it is empty."),
        ("- a\n- b\n", "it is a list instead of a mapping with `mode` and `instructions`."),
        ("words\n", "it is one value instead of a mapping with `mode` and `instructions`."),
        ("instructions: {general: [x]}\n", "it has no mode; add `mode: debug`."),
        ("mode: ask\n", 'its mode is "ask", not "debug".'),
    ],
)
async def test_a_file_that_is_passed_over_is_told_what_it_is(bank: Banking, text: str, said: str) -> None:
    put(bank, ".clinerules-debug", text)
    found = await read_rules(bank.bank, "debug")
    assert [warned.message for warned in found.warnings] == [f".clinerules-debug is ignored: {said}"]


async def test_a_pattern_that_cannot_be_used_is_replaced_by_the_built_in_one(bank: Banking) -> None:
    put(bank, ".mcprules-code", OWN.replace("(save|umb)", "(a+)+"))
    found = await read_rules(bank.bank, "code")
    assert found.rules.trigger is None
    assert found.rules.general[0] == "Write small functions."
    assert [warned.code for warned in found.warnings] == ["trigger_ignored"]


async def test_rules_are_written_where_there_are_none_and_read_back(bank: Banking) -> None:
    put(bank, ".mcprules-ask", "mine")
    put(bank, ".clinerules-debug", "mine")
    names = await write_rules(bank.bank)
    assert names == [".mcprules-architect", ".mcprules-code", ".mcprules-test"]
    assert (bank.home / ".mcprules-ask").read_bytes() == b"mine"
    written: tuple[Mode, ...] = ("architect", "code", "test")
    for mode in written:
        found = await read_rules(bank.bank, mode)
        built_in = BUILT_IN_RULES[mode]
        assert found.warnings == []
        assert found.rules.general == built_in.general
        assert found.rules.umb == built_in.umb
        assert found.rules.files_to_update == built_in.files_to_update
        assert found.rules.trigger == built_in.trigger
    assert await write_rules(bank.bank) == []


async def test_what_yaml_has_other_types_for_is_text_as_it_was_written(bank: Banking) -> None:
    put(bank, ".mcprules-code", "mode: code\ninstructions:\n  general: [yes, 0x1F, 2026-01-01, 1_000, ~, Done:, 7]\n")
    found = await read_rules(bank.bank, "code")
    assert found.rules.general == ("yes", "0x1F", "2026-01-01", "1_000", "Done:", "7")


@pytest.mark.parametrize("name", [".mcprules-code", ".clinerules-code"])
async def test_a_rule_file_that_may_not_be_read_is_passed_over(bank: Banking, name: str) -> None:
    outside = bank.home.parent / "outside"
    outside.write_text(OWN, encoding="utf-8")
    (bank.home / name).symlink_to(outside)
    found = await read_rules(bank.bank, "code")
    assert found.rules == BUILT_IN_RULES["code"]
    assert [warned.code for warned in found.warnings] == ["rules_ignored"]
