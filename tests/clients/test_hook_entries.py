import json
from pathlib import Path
from typing import Any

import pytest

from recollect.clients import jsonc
from recollect.clients.hook_entries import EVENTS, HooksPart, hooked_events, hooks_of_ours
from recollect.clients.shapes import Unfitting

PLUGIN = Path(__file__).parents[2] / "plugin" / "hooks" / "hooks.json"
SAMPLE = Path(__file__).parent / "samples" / "claude-settings.json"


def part(program: str = "/opt/recollect") -> HooksPart:
    return HooksPart(Path("settings.json"), lambda event: f"{program} hook {event}")


def sample() -> str:
    return SAMPLE.read_bytes().decode("utf-8")


def group(command: str, **more: Any) -> dict[str, Any]:
    return {**more, "hooks": [{"type": "command", "command": command}]}


def test_each_event_gets_a_hook_behind_those_of_others() -> None:
    before, after = jsonc.parsed(sample()), jsonc.parsed(part().put(sample()))
    assert set(hooked_events(after)) == set(EVENTS)
    for event, groups in before["hooks"].items():
        assert after["hooks"][event][: len(groups)] == groups
    assert part().others(after) == before
    started = after["hooks"]["SessionStart"][1]
    assert started == {
        "hooks": [{"type": "command", "command": "/opt/recollect hook SessionStart", "timeout": 5}]
    }
    used = after["hooks"]["PostToolUse"][1]
    assert "Bash" in used["matcher"].split("|")
    assert used["hooks"][0]["async"] is True


def test_a_second_time_changes_nothing_and_taking_out_gives_the_text_back() -> None:
    after = part().put(sample())
    assert part().put(after) == after
    assert part().taken(after, tidy=True) == sample()
    assert part().taken(part().content, tidy=True) == "{}\n"


def test_another_place_of_the_program_replaces_the_old_one() -> None:
    after = part("/new/recollect").put(part("/old/run").put(sample()))
    assert after == part("/new/recollect").put(sample())
    assert {words[0] for words in hooks_of_ours(jsonc.parsed(after))} == {"/new/recollect"}


def test_hooks_that_others_added_since_stay_in_their_order() -> None:
    values = jsonc.parsed(part().put(sample()))
    values["hooks"]["SessionStart"] += [group("later")]
    values["hooks"]["SessionStart"][1]["hooks"].insert(0, {"type": "command", "command": "mine"})
    values["hooks"]["PreCompact"][0]["hooks"].append({"type": "prompt", "prompt": "recollect hook"})
    text = json.dumps(values, indent=2)
    moved = jsonc.parsed(part("/new/recollect").put(text))
    mixed = moved["hooks"]["SessionStart"][1]["hooks"]
    assert [hook["command"] for hook in mixed] == ["mine", "/new/recollect hook SessionStart"]
    left = jsonc.parsed(part().taken(text, tidy=True))
    commands = [item["hooks"][0]["command"] for item in left["hooks"]["SessionStart"]]
    assert commands == ["npm run hook SessionStart", "mine", "later"]
    assert left["hooks"]["PreCompact"] == [
        {"hooks": [{"type": "prompt", "prompt": "recollect hook"}]}
    ]
    assert part().others(values) == left


def test_ours_is_there_once_and_only_where_it_belongs() -> None:
    twice = [
        group("/a/recollect hook SessionStart"),
        group("x"),
        group("/b/recollect hook SessionStart"),
    ]
    hooks = {"SessionStart": twice, "Stop": [group("/a/recollect hook Stop"), group("y")]}
    after = jsonc.parsed(part().put(json.dumps({"hooks": hooks})))
    commands = [item["hooks"][0]["command"] for item in after["hooks"]["SessionStart"]]
    assert commands == ["/opt/recollect hook SessionStart", "x"]
    assert after["hooks"]["Stop"] == [group("y")]


def test_a_command_with_its_arguments_apart_is_known_too() -> None:
    hook = {"type": "command", "command": "/opt/recollect", "args": ["hook", "PreCompact"]}
    text = json.dumps({"hooks": {"PreCompact": [{"hooks": [hook]}]}})
    assert part().taken(text, tidy=True) == "{}"
    assert hooks_of_ours(json.loads(text)) == [("/opt/recollect", "hook", "PreCompact")]


@pytest.mark.parametrize("hooks", ["[]", '{"SessionStart": {}}', '"none"', '{"Stop": 3}'])
def test_a_surprising_shape_is_refused(hooks: str) -> None:
    with pytest.raises(Unfitting):
        part().put(f'{{"hooks": {hooks}}}')


@pytest.mark.parametrize("odd", ["3", "null", '{"hooks": 3}', '{"hooks": [3, null]}', "[]"])
def test_odd_groups_of_others_stay(odd: str) -> None:
    text = f'{{"hooks": {{"SessionStart": [{odd}]}}}}'
    assert part().taken(part().put(text), tidy=True) == text


def test_the_plugin_answers_the_same_events() -> None:
    hooks = json.loads(PLUGIN.read_text(encoding="utf-8"))["hooks"]
    assert set(hooks) == set(EVENTS)
    for event, ours in EVENTS.items():
        if "matcher" in ours:
            theirs = hooks[event][0]["matcher"]
            assert set(theirs.split("|")) == set(ours["matcher"].split("|"))
