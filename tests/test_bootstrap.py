"""`run` and `test` make, keep and repair the environment they start from."""

from __future__ import annotations

import hashlib
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import cache_from_source
from pathlib import Path

import psutil
import pytest

from everkept.core.extras import EXTRAS
from scratch_checkout import PROJECT, Checkout, scratch_checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return scratch_checkout(tmp_path)


def test_a_first_start_installs_the_project_with_what_the_machine_has(checkout: Checkout) -> None:
    (checkout.root / "src").unlink()
    (checkout.root / "src").mkdir()
    (checkout.root / "src/everkept.py").write_text("import sys\nprint('ran', *sys.argv[1:])\n")
    path = os.environ["PATH"]
    done = checkout.run("a", "b c", PATH=path, PIP_NO_INDEX="1", UV_OFFLINE="1", UV_NO_CACHE="1")
    assert (done.stdout, done.returncode) == ("ran a b c\n", 0), done.stderr


def test_set_up_leaves_bytecode_for_every_module(checkout: Checkout) -> None:
    (checkout.root / "src").unlink()
    package = checkout.root / "src/everkept"
    (package / "core").mkdir(parents=True)
    for name in ("__init__.py", "core/__init__.py", "core/words.py"):
        (package / name).write_text("x = 1\n")
    checkout.run("x", PYTHONDONTWRITEBYTECODE="1")
    [dependency] = checkout.environment.glob("lib/python*/site-packages/dependency.py")
    for module in (dependency, *package.rglob("*.py")):
        assert Path(cache_from_source(str(module))).exists(), module


def test_a_start_without_arguments_serves(checkout: Checkout) -> None:
    assert checkout.run().stdout == "ran serve\n"


def test_set_up_leaves_standard_input_and_output_to_the_program(checkout: Checkout) -> None:
    done = checkout.run("relay", told="a message\n")
    assert done.stdout == "ran relay\na message\n"
    assert "ready after" in done.stderr


def test_a_later_start_is_silent_and_needs_no_python(checkout: Checkout) -> None:
    checkout.run()
    later = checkout.run("x", EVERKEPT_PYTHON="/nowhere", PATH="/nowhere")
    assert (later.stdout, later.stderr, later.returncode) == ("ran x\n", "", 0)


@pytest.mark.parametrize("path", ["", ":", "code", ".:/nowhere"])
def test_no_start_runs_code_of_the_working_folder(checkout: Checkout, tmp_path: Path, path: str) -> None:
    hostile = tmp_path / "hostile"
    for name in ("sitecustomize", "usercustomize", "everkept", "venv", "pip", "sys", "json", "installers", "hashlib"):
        for folder in (hostile, hostile / "code"):
            folder.mkdir(exist_ok=True)
            (folder / f"{name}.py").write_text("open('was here', 'w').close()\n")
    checkout.folder = hostile
    for _ in range(2):
        assert checkout.run("x", PYTHONPATH=path, PYTHONSAFEPATH="").stdout == "ran x\n"
    assert not (hostile / "was here").exists()


def test_a_start_through_a_link_finds_the_checkout(checkout: Checkout) -> None:
    link = checkout.root.parent / "everkept"
    link.symlink_to("checkout/run")
    checkout.root = checkout.root.parent
    assert checkout.run("x", by="everkept").stdout == "ran x\n"


def test_two_first_starts_at_once_make_one_environment(checkout: Checkout) -> None:
    with (
        checkout.start("first", UV_GATE=str(checkout.gate)) as first,
        checkout.gate.open("w") as gate,
        checkout.start("second") as second,
    ):
        assert second.stderr
        assert "waiting" in second.stderr.readline()
        gate.write("go\n")
        gate.close()
        assert first.communicate()[0] == "ran first\n"
        assert second.communicate()[0] == "ran second\n"
    assert checkout.installs() == ["run"]


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_a_half_made_environment_is_made_again(checkout: Checkout, sent: signal.Signals) -> None:
    assert checkout.start_and_stop(sent) != 0
    (checkout.environment / "left behind").touch()
    assert checkout.run("x").stdout == "ran x\n"
    assert not (checkout.environment / "left behind").exists()


def test_a_lock_of_a_dead_process_holds_nobody_up(checkout: Checkout) -> None:
    checkout.environment.mkdir()
    (checkout.environment / ".everkept-lock").touch()
    done = checkout.run("x")
    assert done.stdout == "ran x\n"
    assert "waiting" not in done.stderr


def test_an_installer_that_outlives_its_set_up_keeps_the_next_one_waiting(checkout: Checkout) -> None:
    with checkout.start("first", UV_GATE=str(checkout.gate)) as first, checkout.gate.open("w") as gate:
        (bootstrap,) = psutil.Process(first.pid).children()
        bootstrap.kill()
        with checkout.start("second") as second:
            assert second.stderr
            assert "waiting" in second.stderr.readline()
            gate.write("go\n")
            gate.close()
            assert second.communicate()[0] == "ran second\n"
        assert first.communicate()[0] == ""


def test_changed_requirements_are_installed_in_place(checkout: Checkout) -> None:
    checkout.run()
    (checkout.environment / "in use").touch()
    for name in ("pyproject.toml", "requirements/run.txt"):
        checkout.change(name)
        assert "ready after" in checkout.run().stderr
        assert checkout.run().stderr == ""
    assert (checkout.environment / "in use").exists()


def test_touched_requirements_are_read_once_and_not_installed(checkout: Checkout) -> None:
    checkout.run()
    checkout.date(".venv/.everkept-ready", seconds_ago=60)
    checkout.date("pyproject.toml", seconds_ago=30)
    assert checkout.run().stderr == ""
    assert checkout.run(EVERKEPT_PYTHON="/nowhere").stdout == "ran serve\n"
    assert checkout.installs() == ["run"]


@pytest.mark.thorough  # pip runs in full
def test_a_failed_upgrade_says_why_and_keeps_the_environment(checkout: Checkout) -> None:
    checkout.run()
    (checkout.environment / "in use").touch()
    (checkout.root / "requirements/run.txt").write_text(f"nothing==1 --hash=sha256:{'0' * 64}\n")
    failed = checkout.run("x", UV_FAILS="1", PIP_NO_INDEX="1")
    assert (failed.stdout, failed.returncode) == ("", 1)
    assert "the disk is full" in failed.stderr
    assert checkout.run("x").stdout == "ran x\n"
    assert (checkout.environment / "in use").exists()


def test_the_environment_for_checks_is_made_in_place_and_serves_to_run(checkout: Checkout) -> None:
    checkout.run()
    (checkout.environment / "in use").touch()
    assert checkout.run(by="test").stdout == "checked\n"
    assert checkout.run("x").stderr == ""
    assert (checkout.environment / "in use").exists()
    assert checkout.installs() == ["run", "dev"]


def test_an_environment_for_checks_stays_one_when_run_upgrades_it(checkout: Checkout) -> None:
    checkout.run(by="test")
    checkout.change("pyproject.toml")
    checkout.run()
    assert checkout.installs() == ["dev", "dev"]


def test_a_moved_checkout_makes_its_environment_again(checkout: Checkout) -> None:
    checkout.run()
    checkout.root = checkout.root.rename(checkout.root.with_name("moved"))
    assert "making" in checkout.run().stderr
    assert checkout.run("x").stderr == ""


def test_an_environment_whose_python_is_gone_is_made_again(checkout: Checkout) -> None:
    checkout.run()
    python = checkout.environment / "bin/python"
    python.unlink()
    python.symlink_to("/nowhere/python")
    assert checkout.run("x").stdout == "ran x\n"
    assert python.exists()


def test_an_environment_made_by_hand_is_taken_over(checkout: Checkout) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(checkout.environment)], check=True)
    (checkout.environment / "in use").touch()
    assert checkout.run("x").stdout == "ran x\n"
    assert (checkout.environment / "in use").exists()


def test_the_environment_can_be_elsewhere(checkout: Checkout, tmp_path: Path) -> None:
    elsewhere = str(tmp_path / "else where/env")
    assert checkout.run("x", EVERKEPT_VENV=elsewhere).stdout == "ran x\n"
    assert checkout.run("x", EVERKEPT_VENV=elsewhere).stderr == ""
    assert not checkout.environment.exists()


def test_another_checkout_takes_over_an_environment_as_it_is(checkout: Checkout, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    checkout.run(EVERKEPT_VENV=str(elsewhere))
    (elsewhere / "in use").touch()
    checkout.root = checkout.root.rename(checkout.root.with_name("next version"))
    assert "ready after" in checkout.run("x", EVERKEPT_VENV=str(elsewhere)).stderr
    assert checkout.run("x", EVERKEPT_VENV=str(elsewhere)).stderr == ""
    assert (elsewhere / "in use").exists()
    [link] = elsewhere.glob("lib/python*/site-packages/everkept.pth")
    assert link.read_text() == f"{checkout.root / 'src'}\n"


def test_a_hook_does_not_wait_for_an_environment(checkout: Checkout) -> None:
    at_start = checkout.run("hook", "SessionStart")
    assert "not set up yet" in json.loads(at_start.stdout)["systemMessage"]
    later = checkout.run("hook", "UserPromptSubmit", told="{}")
    assert (later.stdout, later.stderr) == ("", "")
    assert (at_start.returncode, later.returncode) == (0, 0)
    assert not checkout.environment.exists()


def test_a_hook_runs_where_there_is_an_environment(checkout: Checkout) -> None:
    checkout.run()
    assert checkout.run("hook", "SessionStart").stdout == "ran hook SessionStart\n"


def test_an_extra_is_added_in_place_and_kept_at_an_upgrade(checkout: Checkout) -> None:
    checkout.run("x")
    added = subprocess.run(
        [sys.executable, checkout.root / "tools/bootstrap.py", "run ssh", checkout.environment, "--percent"],
        env=checkout.variables,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    percents = [int(line.split()[0]) for line in added.stderr.splitlines() if line.endswith(" %")]
    assert (percents, percents[-1]) == (sorted(percents), 100)
    assert checkout.run("x", EVERKEPT_PYTHON="/nowhere").stderr == ""
    checkout.change("requirements/ssh.txt")
    assert "ready after" in checkout.run("x").stderr
    assert checkout.installs() == ["run", "run", "ssh", "run", "ssh"]


def test_a_directory_with_other_things_is_left_alone(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters/dear").touch()
    for _ in range(2):
        assert checkout.run(EVERKEPT_VENV=str(tmp_path / "letters")).returncode == 1
    assert (tmp_path / "letters/dear").exists()


def test_a_machine_without_python_is_told_what_to_install(checkout: Checkout) -> None:
    done = checkout.run(EVERKEPT_PYTHON="/nowhere")
    assert (done.stdout, done.returncode) == ("", 1)
    assert "needs Python 3.11" in done.stderr


@contextmanager
def served(folder: Path) -> Generator[str]:
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    wheels = tmp_path / "index/wheels"
    wheels.mkdir(parents=True)
    links: list[str] = []
    for version, requires in {"9.9": ">=3.7", "24.10": ">=3.8", "99.1": ">=3.99"}.items():
        wheel = wheels / f"pip-{version}-py3-none-any.whl"
        wheel.write_text(version)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        needs = requires.replace(">", "&gt;")
        link = f"../../wheels/{wheel.name}#sha256={digest}"
        links.append(f'<a href="{link}" data-requires-python="{needs}">{wheel.name}</a>')
    page = tmp_path / "index/simple/pip"
    page.mkdir(parents=True)
    (page / "index.html").write_text("\n".join(links))
    with served(tmp_path / "index") as address:
        yield f"{address}/simple"


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    return {"PIP_CONFIG_FILE": os.devnull, "HOME": str(tmp_path)}


fetch = runpy.run_path(str(PROJECT / "tools/pip_wheel.py"))["fetch"]


def test_the_newest_pip_for_this_python_comes_from_the_configured_index(
    index: str, settings: dict[str, str], tmp_path: Path
) -> None:
    assert fetch(tmp_path, settings | {"PIP_INDEX_URL": index}).read_text() == "24.10"


def test_a_file_of_settings_names_the_index_too(index: str, tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {index}\n")
    named = {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "HOME": str(tmp_path)}
    # The settings of the whole machine are read too, and must not lead the test outside.
    inside = {"PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": ""}
    assert fetch(tmp_path, named | inside).read_text() == "24.10"


def test_a_pip_that_is_not_what_the_index_announced_is_refused(
    index: str, settings: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "index/wheels/pip-24.10-py3-none-any.whl").write_text("something else")
    with pytest.raises(OSError, match="hash"):
        fetch(tmp_path, settings | {"PIP_INDEX_URL": index})


def test_an_index_that_strangers_can_forge_is_refused(settings: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(OSError, match="https"):
        fetch(tmp_path, settings | {"PIP_INDEX_URL": "http://index.invalid/simple"})


def test_without_an_index_no_pip_is_fetched(settings: dict[str, str], tmp_path: Path) -> None:
    assert fetch(tmp_path, settings) is None


def pins(name: str) -> set[tuple[str, str]]:
    text = (PROJECT / f"requirements/{name}.txt").read_text(encoding="utf-8")
    return set(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", requirement)[0] for requirement in requirements}


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    assert names(project["project"]["dependencies"]) <= dict(pins("run")).keys()
    assert names(project["build-system"]["requires"]) <= dict(pins("build")).keys()
    assert names(project["dependency-groups"]["dev"]) <= dict(pins("dev")).keys()
    for extra in EXTRAS:
        assert names(extras[extra]) <= dict(pins(extra)).keys()
    assert names(extras["all"]) == {name for extra in EXTRAS for name in names(extras[extra])}


@pytest.mark.parametrize("name", ["run", "build", *EXTRAS])
def test_the_checks_run_with_the_packages_that_users_run(name: str) -> None:
    assert pins(name) <= pins("dev")


def test_a_first_start_installs_few_packages() -> None:
    assert len({name for name, _ in pins("run")}) <= 33  # four of them for Macs with an Intel processor


@pytest.mark.parametrize("name", ["run", "build", "dev", *EXTRAS])
def test_the_pins_name_no_index(name: str) -> None:
    text = (PROJECT / f"requirements/{name}.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*-", text.replace("    --hash=sha256:", ""), re.MULTILINE)
