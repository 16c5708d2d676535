import json
from pathlib import Path
from typing import Any

import pytest

from everkept.clients import jsonc
from everkept.clients.config_files import CLAUDE_CODE, UnexpectedShape
from everkept.clients.hook_entries import HOOK_FORMATS, HooksConfigPart, list_hooked_events, list_our_hooks
from everkept.hooks.entry import load_handler, parse_arguments

PLUGIN = Path(__file__).parents[2] / "plugin" / "hooks" / "hooks.json"
CLAUDE = HOOK_FORMATS[CLAUDE_CODE]
HOOK_EVENTS = CLAUDE.events
SAMPLE = Path(__file__).parent / "samples" / "claude-settings.json"


def part(program: str = "/opt/everkept", *launchers: str) -> HooksConfigPart:
    return HooksConfigPart(Path("settings.json"), lambda event: f"{program} hook {event}", launchers)


def sample() -> str:
    return SAMPLE.read_bytes().decode("utf-8")


def group(command: str, **more: Any) -> dict[str, Any]:
    return {**more, "hooks": [{"type": "command", "command": command}]}


def test_each_event_gets_a_hook_behind_those_of_others() -> None:
    before, after = jsonc.parse_text(sample()), jsonc.parse_text(part().insert(sample()))
    assert set(list_hooked_events(after, CLAUDE)) == set(HOOK_EVENTS)
    for event, groups in before["hooks"].items():
        assert after["hooks"][event][: len(groups)] == groups
    assert part().exclude_ours(after) == before
    started = after["hooks"]["SessionStart"][1]
    assert started == {"hooks": [{"type": "command", "command": "/opt/everkept hook SessionStart", "timeout": 15}]}
    used = after["hooks"]["PostToolUse"][1]
    assert "Bash" in used["matcher"].split("|")
    assert "async" not in used["hooks"][0]


def test_a_hook_of_ours_that_nobody_waited_for_is_waited_for_again() -> None:
    before = jsonc.parse_text(part().insert("{}"))
    for event in ("PostToolUse", "PostToolUseFailure"):
        before["hooks"][event][0]["hooks"][0]["async"] = True
    assert jsonc.parse_text(part().insert(json.dumps(before))) == jsonc.parse_text(part().insert("{}"))


def test_a_second_time_changes_nothing_and_taking_out_gives_the_text_back() -> None:
    after = part().insert(sample())
    assert part().insert(after) == after
    assert part().remove(after) == sample()
    assert part().remove(part().content) == "{}\n"


def test_another_place_of_the_program_replaces_the_old_one() -> None:
    before = part("/old/run", "/old/run").insert(sample())
    after = part("/new/everkept", "/old/run").insert(before)
    assert after == part("/new/everkept").insert(sample())
    assert {words[0] for words in list_our_hooks(jsonc.parse_text(after), CLAUDE)} == {"/new/everkept"}


def test_a_launcher_that_nobody_knows_is_another_s() -> None:
    before = part("/old/run", "/old/run").insert(sample())
    values = jsonc.parse_text(before)
    assert list_hooked_events(values, CLAUDE) == ()
    assert list_hooked_events(values, CLAUDE, ["/old/run"]) == tuple(
        event for event in values["hooks"] if event in HOOK_EVENTS
    )
    assert part().remove(before) == before
    assert part().exclude_ours(jsonc.parse_text(part().insert(before))) == values


@pytest.mark.parametrize(
    "command",
    [
        "./scripts/run.sh hook {event}",
        "$CLAUDE_PROJECT_DIR/bin/run hook {event} --all",
        "/opt/tools/run hook {event}",
        "npm run hook {event}",
        "echo everkept hook {event}",
        "everkept-other hook {event}",
        "/everkept/other hook {event}",
        "everkept hook lint",
        "everkept hook {event} && mine",
        "everkept hook {event} --project x;mine",
        "everkept hook {event} 2>/dev/null || true",
        "everkept hook {event} mine",
        "everkept hook {event}\nmine",
    ],
)
def test_hooks_of_others_stay_at_every_event(command: str) -> None:
    hooks = {name: [group(command.format(event=name))] for name in (*HOOK_EVENTS, "Stop", "PreToolUse")}
    text = json.dumps({"hooks": hooks}, indent=1)
    after = part().insert(text)
    for event, groups in jsonc.parse_text(after)["hooks"].items():
        assert groups[0] == hooks[event][0]
    assert part().remove(after) == part().remove(text) == text


def test_under_events_that_we_never_wrote_nothing_is_ours() -> None:
    text = json.dumps({"hooks": {"Stop": [group("/opt/everkept hook Stop")], "Odd": 3}})
    assert part().remove(text) == text
    after = jsonc.parse_text(part().insert(text))
    assert after["hooks"]["Stop"] == [group("/opt/everkept hook Stop")]
    assert after["hooks"]["Odd"] == 3


def test_what_somebody_added_to_our_hook_stays() -> None:
    values = jsonc.parse_text(part().content)
    ours = values["hooks"]["SessionStart"][0]
    ours["matcher"] = "startup"
    ours["hooks"][0]["statusMessage"] = "remembering"
    text = json.dumps(values, indent=2).replace('"timeout"', '// mine\n"timeout"')
    assert part().insert(text) == text
    moved = part("/new/everkept").insert(text)
    assert moved.count("// mine") == len(HOOK_EVENTS)
    group_now = jsonc.parse_text(moved)["hooks"]["SessionStart"][0]
    assert (group_now["matcher"], group_now["hooks"][0]["statusMessage"]) == ("startup", "remembering")
    assert group_now["hooks"][0]["command"] == "/new/everkept hook SessionStart"


def test_hooks_that_others_added_since_stay_in_their_order() -> None:
    values = jsonc.parse_text(part().insert(sample()))
    values["hooks"]["SessionStart"] += [group("later")]
    values["hooks"]["SessionStart"][1]["hooks"].insert(0, {"type": "command", "command": "mine"})
    values["hooks"]["PreCompact"][0]["hooks"].append({"type": "prompt", "prompt": "everkept hook"})
    text = json.dumps(values, indent=2)
    moved = jsonc.parse_text(part("/new/everkept").insert(text))
    mixed = moved["hooks"]["SessionStart"][1]["hooks"]
    assert [hook["command"] for hook in mixed] == ["mine", "/new/everkept hook SessionStart"]
    left = jsonc.parse_text(part().remove(text))
    commands = [item["hooks"][0]["command"] for item in left["hooks"]["SessionStart"]]
    assert commands == ["npm run hook SessionStart", "mine", "later"]
    assert left["hooks"]["PreCompact"] == [{"hooks": [{"type": "prompt", "prompt": "everkept hook"}]}]
    assert part().exclude_ours(values) == left


def test_ours_is_there_once() -> None:
    twice = [group("/a/everkept hook SessionStart"), group("x"), group("/b/everkept hook SessionStart")]
    after = jsonc.parse_text(part().insert(json.dumps({"hooks": {"SessionStart": twice}})))
    commands = [item["hooks"][0]["command"] for item in after["hooks"]["SessionStart"]]
    assert commands == ["/opt/everkept hook SessionStart", "x"]


def test_a_command_with_its_arguments_apart_is_known_too() -> None:
    hook = {"type": "command", "command": "/opt/everkept", "args": ["hook", "PreCompact"]}
    text = json.dumps({"hooks": {"PreCompact": [{"hooks": [hook]}]}})
    assert part().remove(text) == "{}"
    assert list_our_hooks(json.loads(text), CLAUDE) == [("/opt/everkept", "hook", "PreCompact")]
    (renewed,) = jsonc.parse_text(part().insert(text))["hooks"]["PreCompact"][0]["hooks"]
    assert renewed == {"type": "command", "command": part().line("PreCompact"), "timeout": 15}


@pytest.mark.parametrize("hooks", ["[]", '{"SessionStart": {}}', '"none"', '{"PreCompact": 3}'])
def test_a_surprising_shape_is_refused(hooks: str) -> None:
    with pytest.raises(UnexpectedShape):
        part().insert(f'{{"hooks": {hooks}}}')


@pytest.mark.parametrize("odd", ["3", "null", '{"hooks": 3}', '{"hooks": [3, null]}', "[]"])
def test_odd_groups_of_others_stay(odd: str) -> None:
    text = f'{{"hooks": {{"SessionStart": [{odd}]}}}}'
    assert part().remove(part().insert(text)) == text


def test_the_plugin_answers_the_same_events() -> None:
    hooks = json.loads(PLUGIN.read_text(encoding="utf-8"))["hooks"]
    assert set(hooks) == set(HOOK_EVENTS)
    for event, ours in HOOK_EVENTS.items():
        if "matcher" in ours:
            theirs = hooks[event][0]["matcher"]
            assert set(theirs.split("|")) == set(ours["matcher"].split("|"))


OTHERS: dict[str, dict[str, Any]] = {
    "codex": {"hooks": {"SessionStart": [group("mine")], "Stop": [group("mine")]}},
    "copilot": {"version": 1, "hooks": {"SessionStart": [{"type": "command", "bash": "mine"}]}},
    "cursor": {"version": 1, "hooks": {"stop": [{"command": "mine"}], "sessionStart": [{"command": "mine"}]}},
    "gemini": {"ui": {"theme": "x"}, "hooks": {"AfterTool": [group("mine", matcher="replace")]}},
}


def part_of(client: str, program: str = "/opt/everkept") -> HooksConfigPart:
    form = HOOK_FORMATS[client]

    def line(event: str) -> str:
        return f"{program} hook {event} --client {form.client}"

    return HooksConfigPart(Path("hooks.json"), line, (), form)


@pytest.mark.parametrize("client", OTHERS)
def test_every_client_gets_its_hooks_beside_those_of_others_and_gives_them_back(client: str) -> None:
    ours, form = part_of(client), HOOK_FORMATS[client]
    held: list[dict[str, Any]] = [OTHERS[client], {}, {"hooks": {}}]
    for before in held:
        text = json.dumps(before, indent=2)
        after = ours.insert(text)
        values = jsonc.parse_text(after)
        assert set(list_hooked_events(values, form)) == set(form.events)
        assert ours.exclude_ours(values) == ours.exclude_ours(before)
        assert part_of(client, "/old/everkept").insert(after) != after == ours.insert(after)
        assert ours.insert(part_of(client, "/old/everkept").insert(text)) == after
        assert ours.is_present(values)
        assert not ours.is_present(jsonc.parse_text(ours.remove(after)))
    assert ours.remove(ours.insert(json.dumps(OTHERS[client], indent=2))) == json.dumps(OTHERS[client], indent=2)
    assert jsonc.parse_text(ours.remove(ours.content)) == {}


@pytest.mark.parametrize(
    ("client", "event", "item"),
    [
        (
            "codex",
            "SessionEnd",
            {"hooks": [{"type": "command", "command": "/opt/everkept hook SessionEnd --client codex", "timeout": 3}]},
        ),
        (
            "copilot",
            "PostToolUse",
            {"type": "command", "command": "/opt/everkept hook PostToolUse --client copilot", "timeoutSec": 15},
        ),
        (
            "cursor",
            "postToolUse",
            {"matcher": "Shell|Write", "command": "/opt/everkept hook postToolUse --client cursor", "timeout": 15},
        ),
        (
            "gemini",
            "BeforeAgent",
            {
                "hooks": [
                    {
                        "name": "everkept",
                        "type": "command",
                        "command": "/opt/everkept hook BeforeAgent --client gemini",
                        "timeout": 15_000,
                    }
                ]
            },
        ),
    ],
)
def test_a_hook_has_the_form_of_its_client(client: str, event: str, item: dict[str, Any]) -> None:
    values = jsonc.parse_text(part_of(client).content)
    assert values["hooks"][event] == [item]
    assert values.get("version") == (1 if client in ("copilot", "cursor") else None)


def test_hooks_of_another_client_are_not_ours() -> None:
    text = part_of("cursor").content
    assert part().remove(text) == text


@pytest.mark.parametrize("client", OTHERS)
def test_every_hook_is_answered_and_its_client_is_known(client: str) -> None:
    form = HOOK_FORMATS[client]
    for event in form.events:
        call = parse_arguments([event, "--client", form.client])
        assert load_handler(call.event) is not None
        assert call.client == client
