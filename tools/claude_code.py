"""The plugin in the real Claude Code: validated, installed, connected, and used in sessions.

The sessions talk to a stand-in for the language model, so that nothing leaves the machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from node_tools import CHECKOUT, PATIENCE, Failed, Node, install
from stand_in_model import StandIn, call, stand_in_model

PLUGIN = "everkept@everkept"
SERVER = "plugin:everkept:everkept"
TOOL = "mcp__plugin_everkept_everkept__"
ADDRESS = "https://everkept.invalid/everkept.git"  # git uses the scratch copy instead
FACT = "Orders are kept in PostgreSQL because refunds need transactions."
QUESTION = "Which database did we choose for the orders?"
BEHIND = "memory__search"  # a tool of the gateway
LONGEST_IMPORT = 60  # seconds
DECISION = "Let's use eight shards for the ledger."
FAULT = "migration 0042 failed: column customer_id is missing"
MIGRATE = "sh migrate.sh"
MIGRATION = f"[ -e column ] || {{ echo '{FAULT}' >&2; exit 3; }}"

# Replaces uv, which sets up the plugin: this environment already has the packages that it would install. It takes as
# long as a file exists.
INSTALLER = """#!/bin/sh
while [ -e "$HOME/slow" ]; do sleep 0.1; done
for packages in "${{4%/*}}"/../lib/python*/site-packages; do
    "{python}" -I -c 'import sys; print(*sys.path[1:], sep="\\n")' >"$packages/outer.pth"
done
"""
BE_READY = "rm ~/slow; until find ~/.. -name .everkept-ready | grep -q ready; do sleep 0.1; done; sleep 2"
STATUS_TOOL = "get_setup_status"  # of tools/setup_server.py


class Workplace(Protocol):
    """Where an assistant works, and with which variables."""

    @property
    def folder(self) -> Path: ...
    @property
    def data(self) -> Path: ...
    @property
    def environment(self) -> dict[str, str]: ...


@dataclass(frozen=True)
class Claude:
    """Claude Code with a private home and working folder."""

    node: Node
    program: Path
    home: Path

    @property
    def folder(self) -> Path:
        return self.home / "shop"

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.home / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "CLAUDE_CONFIG_DIR": str(self.home / ".claude"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "NO_COLOR": "1",
            "EVERKEPT_DATA_DIR": str(self.data),
            "EVERKEPT_PYTHON": sys.executable,
        }

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        env = self.environment | variables
        return self.node.run(str(self.program), *arguments, folder=self.folder, env=env)

    def expect(self, wanted: str, *arguments: str) -> None:
        """Raise an error unless the command succeeds and prints this."""
        done = self.run(*arguments)
        if done.returncode != 0 or wanted not in done.stdout:
            raise Failed(
                f"claude {' '.join(arguments)}: exit status {done.returncode}, "
                f"or no {wanted!r} in the output:\n{done.stdout[-3000:]}{done.stderr[-1000:]}"
            )

    def say(self, model: StandIn, prompt: str, *options: str, **variables: str) -> str:
        """Run one session, and return the text that the model received.

        Raise an error if a hook or a permission failed.
        """
        began = len(model.asked)
        done = self.run(
            *("--print", prompt, "--output-format", "json", *options),
            **{"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "none"} | variables,
        )
        if done.returncode != 0 or "hook" in done.stderr.lower():
            raise Failed(f"session {prompt!r}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
        if denied := json.loads(done.stdout)["permission_denials"]:
            raise Failed(f"session {prompt!r}: not permitted: {denied}")
        return json.dumps([request["messages"] for request in model.asked[began:]])


def plugin_from_git(node: Node, scratch: Path) -> str:
    """Install the plugin from a repository: it is copied, and its first start sets it up."""
    claude = _claude(node, scratch)
    _put_a_server_behind(claude)
    repository = _copy_of_tracked_files(scratch / "repository")
    _commit(repository)
    (claude.home / ".gitconfig").write_text(f'[url "{repository}"]\n\tinsteadOf = {ADDRESS}\n', encoding="utf-8")
    claude.expect("Validation passed", "plugin", "validate", "--strict", str(repository))
    claude.expect("Validation passed", "plugin", "validate", "--strict", str(repository / "plugin"))
    claude.expect("added marketplace", "plugin", "marketplace", "add", ADDRESS)
    claude.expect("installed plugin", "plugin", "install", PLUGIN)
    claude.expect(PLUGIN, "plugin", "list")
    # The first session sets up the server. Hooks do not answer then, and do not delay it.
    with stand_in_model() as model:
        if FACT in claude.say(model, QUESTION):
            raise Failed("the model was told a memory before there was one")
    _expect_connected(claude, SERVER)
    with stand_in_model() as model:
        _remember(claude, model)
        _be_reminded(claude, model)
        _be_told_what_helped(claude, model)
        _be_given_back_what_was_decided(claude, model)
        _ask_the_server_behind(claude, model)
    expect_imported(claude)
    return "installed, connected, 8 sessions"


def plugin_during_setup(node: Node, scratch: Path) -> str:
    """Start a first session while packages are installed: the server answers, and its tools come in the session."""
    claude = _claude(node, scratch)
    repository = _copy_of_tracked_files(scratch / "repository")
    claude.expect("added marketplace", "plugin", "marketplace", "add", str(repository))
    claude.expect("installed plugin", "plugin", "install", PLUGIN)
    (claude.home / "slow").touch()
    memory = {"content": FACT, "type": "semantic", "scope": "project"}
    with stand_in_model() as model:
        model.replies = [
            call("Bash", command="sleep 8", description="Wait until the client has the list of tools"),
            call(f"{TOOL}{STATUS_TOOL}"),
            call("Bash", command=BE_READY, description="Wait"),
            call(f"{TOOL}store_memory", **memory),
        ]
        tools = ("Bash", f"{TOOL}{STATUS_TOOL}", f"{TOOL}store_memory")
        told = claude.say(model, "Remember our database.", "--allowedTools", *tools)
    for text in ("Everkept is setting up: ", "memory_id"):
        if text not in told:
            raise Failed(f"the model was not told {text!r}: {told[-3000:]}")
    return "setting up, then ready, in one session"


def plugin_from_a_checkout(node: Node, scratch: Path) -> str:
    """Install the plugin from a checkout, as the README says: it is used in place, and so is `run`."""
    claude = _claude(node, scratch)
    checkout = _copy_of_tracked_files(scratch / "checkout")
    claude.expect("added marketplace", "plugin", "marketplace", "add", str(checkout))
    claude.expect("installed plugin", "plugin", "install", PLUGIN)
    _expect_connected(claude, SERVER)
    claude.expect("uninstalled plugin", "plugin", "uninstall", PLUGIN)
    run = [str(checkout / "run"), "serve", "--project", "auto"]
    claude.expect("Added", "mcp", "add", "everkept", "--", *run)
    _expect_connected(claude, "everkept")
    return "installed, connected; connected by `mcp add`"


def _remember(claude: Claude, model: StandIn) -> None:
    """Check that the command allows the tools that it names, and that the memory is stored."""
    memory = {"content": FACT, "type": "semantic", "scope": "project", "importance": 0.8}
    model.replies = [call(f"{TOOL}store_memory", **memory)]
    told = claude.say(model, f"/everkept:remember {FACT}")
    if f"The user wants you to remember this: {FACT}" not in told or "memory_id" not in told:
        raise Failed(f"/remember stored nothing: {told[-2000:]}")


def _be_reminded(claude: Claude, model: StandIn) -> None:
    """Check that hooks, not a tool, inform a later session. Cause a failure in it."""
    (claude.folder / "migrate.sh").write_text(MIGRATION, encoding="utf-8")
    commands = (MIGRATE, "touch column", MIGRATE)
    model.replies = [call("Bash", command=command, description="Migrate") for command in commands]
    if FACT not in claude.say(model, QUESTION, "--allowedTools", "Bash"):
        raise Failed("the model was not told what is remembered")
    expect_failure_noted(claude, "with no file edited in between")


def _be_told_what_helped(claude: Claude, model: StandIn) -> None:
    """Check the suggestion at the next failure, and that a command names the program's path."""
    (claude.folder / "column").unlink()
    model.replies = [call("Bash", command=MIGRATE, description="Migrate")]
    told = claude.say(model, "/everkept:memory-status", "--allowedTools", "Bash")
    if "had the same error before" not in told:
        raise Failed(f"the model was not told what fixed the error: {told[-3000:]}")
    if "${CLAUDE_PLUGIN" in told or '/everkept\\" doctor' not in told:
        raise Failed(f"the command does not say where the program is: {told[-3000:]}")


def _be_given_back_what_was_decided(claude: Claude, model: StandIn) -> None:
    """Check that a decision returns after a compaction, even before its import."""
    claude.say(model, DECISION, "--continue")
    claude.say(model, "/compact", "--continue")
    told = claude.say(model, "Which one is next?", "--continue")
    if f"- {DECISION} (decided by the user" not in told:
        raise Failed(f"the model was not told what was decided: {told[-3000:]}")


def _put_a_server_behind(claude: Claude) -> None:
    """Write a gateway file for a test server where the plugin looks for one."""
    program = CHECKOUT / "tests" / "support" / "episodic_server.py"
    tool = {
        "name": BEHIND,
        "description": "Searches past conversations",
        "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}},
        "upstream": {"tool": "search", "paramMapping": {"query": "query"}},
    }
    upstream = {"command": sys.executable, "args": [str(program)]}
    folder = claude.home / ".config" / "everkept"
    folder.mkdir(parents=True)
    text = json.dumps({"upstream": upstream, "tools": [tool]})
    (folder / "tools.json").write_text(text, encoding="utf-8")


def _ask_the_server_behind(claude: Claude, model: StandIn) -> None:
    """Check that the gateway's tool is offered next to ours, and that it answers."""
    name = f"{TOOL}{BEHIND}"
    model.replies = [call(name, query="the harbour")]
    told = claude.say(model, "Where was the harbour?", "--allowedTools", name)
    if "Found 1 relevant conversation" not in told:
        raise Failed(f"the server behind the gateway was not asked: {told[-3000:]}")


def expect_failure_noted(place: Workplace, fix: str) -> None:
    """Check that one automatic memory says what failed, and how it was fixed."""
    noted = everkept_in(place, "list", "--automatic", "--json").stdout
    for text in (f"`{MIGRATE}` failed and then succeeded, {fix}", FAULT):
        if text not in noted:
            raise Failed(f"no automatic memory says {text!r}:\n{noted}")
    if f"`{MIGRATE}` failed:" in noted:
        raise Failed(f"the failure is still there beside its fix:\n{noted}")


def expect_imported(place: Workplace) -> None:
    """Check that the conversation is found without an import, as the user said it, and that no hook failed."""
    expect_no_faults(place)
    found = everkept_in(place, "recall-previous-discussions", QUESTION)
    if QUESTION not in found.stdout.partition("\n")[2] or "hook_context" in found.stdout:
        raise Failed(f"the history does not have what was said:\n{found.stdout}{found.stderr}")


def expect_no_faults(place: Workplace) -> None:
    """Wait until no job is left, and check that no hook failed."""
    hooks = place.data / "hooks"
    until = time.monotonic() + LONGEST_IMPORT
    while any((hooks / "jobs").glob("*.json")):
        if time.monotonic() > until:
            raise Failed(f"the sessions were not imported within {LONGEST_IMPORT} s")
        time.sleep(0.2)
    if (faults := hooks / "faults.log").exists():
        raise Failed(f"hooks noted faults:\n{faults.read_text('utf-8')}")


def everkept_in(place: Workplace, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "everkept", *arguments],
        capture_output=True,
        check=False,
        cwd=place.folder,
        encoding="utf-8",
        env=place.environment,
        timeout=PATIENCE,
    )


def _expect_connected(claude: Claude, name: str) -> None:
    done = claude.run("mcp", "list")
    line = next((each for each in done.stdout.splitlines() if each.startswith(f"{name}: ")), "")
    if "Connected" not in line:
        raise Failed(f"{name} is not connected:\n{done.stdout}{done.stderr[-2000:]}")


def _claude(node: Node, scratch: Path) -> Claude:
    program = install(node, "claude-code") / "cli-wrapper.cjs"
    claude = Claude(node, program, scratch / "home")
    claude.folder.mkdir(parents=True)
    (claude.folder / ".git").mkdir()
    installer = claude.home / "bin" / "uv"
    installer.parent.mkdir()
    installer.write_text(INSTALLER.format(python=sys.executable), encoding="utf-8")
    installer.chmod(0o755)
    return claude


def _copy_of_tracked_files(target: Path) -> Path:
    listed = _git(CHECKOUT, "ls-files", "-z").split("\0")
    for name in filter(None, listed):
        source, copy = CHECKOUT / name, target / name
        if source.is_symlink() or source.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)
    return target


def _commit(repository: Path) -> None:
    # The user's settings may sign commits or run other hooks.
    nobody = {"PATH": os.environ["PATH"], "HOME": str(repository), "GIT_CONFIG_NOSYSTEM": "1"}
    author = ["-c", "user.name=Everkept", "-c", "user.email=everkept@everkept.invalid"]
    _git(repository, "init", "--quiet", env=nobody)
    _git(repository, "add", "--all", env=nobody)
    _git(repository, *author, "commit", "--quiet", "--message", "All", env=nobody)


def _git(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        ["git", *arguments], capture_output=True, check=False, cwd=folder, encoding="utf-8", env=env, timeout=PATIENCE
    )
    if done.returncode != 0:
        raise Failed(f"git {' '.join(arguments)}: {done.stderr}")
    return done.stdout
