"""Everkept in the real Codex, Copilot CLI and Gemini CLI: set up, used in sessions, and removed again.

The sessions talk to a stand-in for the language model, so that nothing leaves the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from claude_code import (
    DECISION,
    FACT,
    MIGRATE,
    MIGRATION,
    QUESTION,
    everkept_in,
    expect_failure_noted,
    expect_imported,
    expect_no_faults,
)
from node_tools import Failed, Node, install
from stand_in_model import StandIn, call, stand_in_model

TRUST = "--dangerously-bypass-hook-trust"
COMPACTING = ("-c", "model_auto_compact_token_limit=1")  # at the next prompt
CODEX_CONFIG = """\
model = "gpt-5.5"
model_provider = "stand-in"

[model_providers.stand-in]
name = "Stand-in"
base_url = "{url}/v1"
wire_api = "responses"
"""
PATCH = "*** Begin Patch\n*** Add File: {}\n+customer_id\n*** End Patch\n"
GEMINI_SETTINGS = '{"security": {"auth": {"selectedType": "gemini-api-key"}}}\n'


@dataclass(frozen=True)
class Assistant:
    """An assistant with a private home and working folder."""

    node: Node
    client: str
    program: Path
    home: Path
    arguments: tuple[str, ...]  # before the prompt
    store: str  # its name of our tool
    run_command: Callable[[str], dict[str, Any]]  # call of its shell
    create_file: Callable[[str], dict[str, Any]]  # call of its editor
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def folder(self) -> Path:
        return self.home / "shop"

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def environment(self) -> dict[str, str]:
        own = {"HOME": str(self.home), "NO_COLOR": "1", "EVERKEPT_DATA_DIR": str(self.data)}
        return {"PATH": os.environ["PATH"], **own, **self.variables}

    def say(self, model: StandIn, prompt: str, *without: str) -> str:
        """Run one session, without some of the arguments, and return what the model received."""
        began = len(model.asked)
        arguments = [each for each in self.arguments if each not in without]
        done = self.node.run(str(self.program), *arguments, prompt, folder=self.folder, env=self.environment)
        if done.returncode != 0 or model.replies or len(model.asked) == began:
            raise Failed(f"session {prompt!r}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
        return json.dumps(model.asked[began:])


def codex_with_hooks(node: Node, scratch: Path) -> str:
    program = install(node, "codex") / "bin" / "codex.js"
    home, config = _make_home(scratch, ".codex/config.toml")
    arguments = ("exec", TRUST, "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check")
    codex = Assistant(
        *(node, "codex", program, home, arguments, "mcp__everkept/store_memory"),
        run_command=lambda command: call("exec_command", cmd=command),
        create_file=lambda name: call("apply_patch", patch=PATCH.format(name)),
    )
    with stand_in_model() as model:
        config.write_text(CODEX_CONFIG.format(url=model.url), encoding="utf-8")
        _set_up(codex, "Run `/hooks` in Codex")
        _remember(codex, model)
        if FACT in codex.say(model, QUESTION, TRUST):
            raise Failed("Codex ran hooks that were not trusted")
        _use(codex, model)
        _be_given_back_what_was_decided(codex, model)
        expect_imported(codex)
        _remove(codex, model)
    return "set up, 7 sessions, removed"


def copilot_with_hooks(node: Node, scratch: Path) -> str:
    program = install(node, "copilot") / "npm-loader.js"
    home, config = _make_home(scratch, ".copilot/config.json")
    config.write_text("{}", encoding="utf-8")
    with stand_in_model() as model:
        copilot = Assistant(
            *(node, "copilot", program, home, ("--allow-all-tools", "-p"), "everkept-store_memory"),
            run_command=lambda command: call("bash", command=command, description="Migrate"),
            create_file=lambda name: call("create", path=str(home / "shop" / name), file_text="customer_id\n"),
            variables={
                "COPILOT_MODEL": "claude-sonnet-4.5",
                "COPILOT_OFFLINE": "true",
                "COPILOT_PROVIDER_API_KEY": "none",
                "COPILOT_PROVIDER_BASE_URL": model.url,
                "COPILOT_PROVIDER_TYPE": "anthropic",
            },
        )
        _set_up(copilot, "Restart Copilot CLI")
        _remember(copilot, model)
        _use(copilot, model)
        expect_no_faults(copilot)
        _remove(copilot, model)
    return "set up, 4 sessions, removed"


def gemini_with_hooks(node: Node, scratch: Path) -> str:
    package = install(node, "gemini")
    program = package / json.loads((package / "package.json").read_text("utf-8"))["bin"]["gemini"]
    home, settings = _make_home(scratch, ".gemini/settings.json")
    settings.write_text(GEMINI_SETTINGS, encoding="utf-8")
    with stand_in_model() as model:
        gemini = Assistant(
            *(node, "gemini", program, home, ("--yolo", "-m", "gemini-2.5-flash", "-p"), "mcp_everkept_store_memory"),
            run_command=lambda command: call("run_shell_command", command=command, description="Migrate"),
            create_file=lambda name: call("write_file", file_path=str(home / "shop" / name), content="customer_id\n"),
            variables={
                "GEMINI_API_KEY": "none",
                "GEMINI_CLI_TRUST_WORKSPACE": "true",
                "GOOGLE_GEMINI_BASE_URL": model.url,
            },
        )
        _set_up(gemini, "Restart Gemini CLI")
        _remember(gemini, model)
        _use(gemini, model)
        expect_imported(gemini)
        _remove(gemini, model)
    return "set up, 4 sessions, removed"


def _make_home(scratch: Path, config: str) -> tuple[Path, Path]:
    home = scratch / "home"
    (home / "shop" / ".git").mkdir(parents=True)
    file = home / config
    file.parent.mkdir()
    return home, file


def _set_up(assistant: Assistant, wanted: str) -> None:
    done = _setup(assistant)
    if wanted not in done.stdout:
        raise Failed(f"setup does not say {wanted!r}:\n{done.stdout}")


def _setup(assistant: Assistant, *options: str) -> subprocess.CompletedProcess[str]:
    done = everkept_in(assistant, "setup", assistant.client, "--yes", *options)
    if done.returncode != 0:
        raise Failed(f"setup {assistant.client} {' '.join(options)}:\n{done.stdout}{done.stderr}")
    return done


def _remember(assistant: Assistant, model: StandIn) -> None:
    """Check that the model can store a memory through our server."""
    model.replies = [call(assistant.store, content=FACT, type="semantic", scope="project", importance=0.8)]
    told = assistant.say(model, "Remember why we use this database.")
    if "memory_id" not in told:
        raise Failed(f"nothing was stored: {told[-3000:]}")


def _use(assistant: Assistant, model: StandIn) -> None:
    """Check that hooks inform sessions, and note failures and edits."""
    (assistant.folder / "migrate.sh").write_text(MIGRATION, encoding="utf-8")
    model.replies = [assistant.run_command(MIGRATE), assistant.create_file("column"), assistant.run_command(MIGRATE)]
    if FACT not in assistant.say(model, QUESTION):
        raise Failed("the model was not told what is remembered")
    expect_failure_noted(assistant, "after edits of column")
    (assistant.folder / "column").unlink()
    model.replies = [assistant.run_command(MIGRATE)]
    told = assistant.say(model, "Please migrate again.")
    if "had the same error before" not in told:
        raise Failed(f"the model was not told what fixed the error: {told[-3000:]}")


def _be_given_back_what_was_decided(codex: Assistant, model: StandIn) -> None:
    """Check that a decision returns after a compaction."""
    codex.say(model, DECISION)
    expect_no_faults(codex)
    command, *options = codex.arguments
    resumed = replace(codex, arguments=(command, "resume", "--last", *options, *COMPACTING))
    told = resumed.say(model, "Which one is next?")
    if f"- {DECISION} (decided by the user" not in told:
        raise Failed(f"the model was not told what was decided: {told[-3000:]}")


def _remove(assistant: Assistant, model: StandIn) -> None:
    """Check that setup removes all that it wrote, so that later sessions are told nothing."""
    written = _setup(assistant, "--undo", "--json")
    for change in json.loads(written.stdout)["changed"]:
        file = Path(change["file"])
        if file.exists() and "everkept" in file.read_text("utf-8"):
            raise Failed(f"setup --undo left in {file}:\n{file.read_text('utf-8')}")
    if FACT in assistant.say(model, QUESTION):
        raise Failed("the model was told a memory after the hooks were removed")
