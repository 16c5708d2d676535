"""The first commands of a deployment, in the order in which they are written down."""

import json
import re
from pathlib import Path

from database_places import variables
from engine_journeys import Place
from everkept.cli.main import COMMANDS
from everkept.settings import Settings
from everkept.values import list_fields

ROOT = Path(__file__).parents[2]


def commands(file: str) -> list[str]:
    """What is given to compose, without what is said about it."""
    text = (ROOT / file).read_text("utf-8")
    return [found.strip() for found in re.findall(r"compose\.yaml ((?:run|up)[^#\n]*)", text)]


def test_both_texts_have_the_owners_token_made_before_the_server_starts() -> None:
    told = commands("deploy/compose.yaml")
    assert told == commands("docs/deployment.md")
    assert told[:2] == ["run --rm everkept token", "up -d"]


def test_a_token_is_made_in_a_database_that_is_empty_and_has_no_server(tmp_path: Path) -> None:
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    at = Place("postgres", tmp_path, variables("postgres"))
    made = at.told("token")
    assert [token["id"] for token in at.told("token", "list")["tokens"]] == [made["id"]]


def test_there_is_one_image_and_its_variables_are_settings() -> None:
    assert [path.name for path in ROOT.rglob("Dockerfile*") if ".venv" not in path.parts] == ["Dockerfile"]
    compose = (ROOT / "deploy" / "compose.yaml").read_text("utf-8")
    assert "build: .." in compose
    named = re.findall(r"\bEVERKEPT_([A-Z_]+):", compose)
    assert {"TRANSPORT", "HOST", "PORT", "CERTIFICATE"} <= {*named}
    assert {name.lower() for name in named} <= {field.name for field in list_fields(Settings)}


def test_the_health_check_of_the_image_is_a_command() -> None:
    image = (ROOT / "Dockerfile").read_text("utf-8")
    [check] = re.findall(r"HEALTHCHECK .*CMD (\[.*\])", image)
    [entry] = re.findall(r"ENTRYPOINT (\[.*\])", image)
    *program, command = json.loads(check)
    assert (program, command in COMMANDS) == (json.loads(entry), True)
