import json
from pathlib import Path
from typing import Any

import pytest

from everkept.clients.survey import find_plugin


def plugin(folder: Path, enabled: Any = None, installed: Any = None) -> str | None:
    settings = folder / "settings.json"
    settings.write_text(json.dumps({"enabledPlugins": enabled}), encoding="utf-8")
    if installed is not None:
        (folder / "plugins").mkdir(exist_ok=True)
        listed = folder / "plugins" / "installed_plugins.json"
        listed.write_text(json.dumps({"version": 2, "plugins": installed}), encoding="utf-8")
    return find_plugin(settings)


def test_the_plugin_is_known_from_either_file(tmp_path: Path) -> None:
    assert plugin(tmp_path, {"everkept@everkept": True}) == "everkept@everkept"
    assert plugin(tmp_path, {}, {"everkept@mine": [{"scope": "user"}]}) == "everkept@mine"


def test_one_that_is_switched_off_does_not_count(tmp_path: Path) -> None:
    assert plugin(tmp_path, {"everkept@mine": False}, {"everkept@mine": []}) is None


@pytest.mark.parametrize("enabled", [None, [], 3, {"other@everkept": True}, {"everkept-x@y": True}])
def test_other_plugins_and_odd_files_do_not_count(tmp_path: Path, enabled: Any) -> None:
    assert plugin(tmp_path, enabled) is None


def test_a_file_that_is_missing_or_broken_says_nothing(tmp_path: Path) -> None:
    assert find_plugin(tmp_path / "settings.json") is None
    (tmp_path / "settings.json").write_text("{", encoding="utf-8")
    assert find_plugin(tmp_path / "settings.json") is None
    (tmp_path / "settings.json").write_text("[]", encoding="utf-8")
    assert find_plugin(tmp_path / "settings.json") is None
