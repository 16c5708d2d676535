import os
import subprocess
from pathlib import Path

import pytest

from everkept.core.projects import find_workspace_key, find_workspace_root
from worktrees import add_worktree


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "shop"
    git(root, "init", "--quiet")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "Begin")
    return root


def git(folder: Path, *arguments: str) -> None:
    folder.mkdir(exist_ok=True)
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True)


def test_a_folder_of_a_repository_is_in_the_workspace_of_its_root(repository: Path) -> None:
    deep = repository / "src" / "deep"
    deep.mkdir(parents=True)
    assert find_workspace_root(deep) == find_workspace_root(repository) == repository


def test_a_worktree_is_in_the_workspace_of_the_main_checkout(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "elsewhere"))
    inside = tmp_path / "elsewhere" / "src"
    inside.mkdir()
    assert find_workspace_root(tmp_path / "elsewhere") == repository
    assert find_workspace_root(inside) == repository


def test_a_worktree_with_relative_paths_is_in_the_workspace_of_the_main_checkout(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    add_worktree(root / "shop", root / "trees" / "fix", relative=True)
    assert find_workspace_root(root / "trees" / "fix") == root / "shop"


@pytest.mark.parametrize("relative", [False, True])
def test_a_forged_git_file_joins_no_other_workspace(repository: Path, tmp_path: Path, *, relative: bool) -> None:
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "fix"))
    forged = tmp_path.resolve() / "forged"
    forged.mkdir()
    for name in ("fix", "new", "../worktrees/fix"):
        target = repository / ".git" / "worktrees" / name
        shown = os.path.relpath(target, forged) if relative else target
        (forged / ".git").write_text(f"gitdir: {shown}\n", encoding="utf-8")
        assert find_workspace_root(forged) == forged


def test_a_link_to_the_git_file_of_a_worktree_joins_no_other_workspace(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "fix"))
    forged = tmp_path.resolve() / "forged"
    forged.mkdir()
    (forged / ".git").symlink_to(tmp_path / "fix" / ".git")
    assert find_workspace_root(forged) == forged


def test_a_worktree_behind_a_link_is_in_the_workspace_of_the_main_checkout(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "link" / "fix"))
    assert (
        find_workspace_root(tmp_path / "link" / "fix") == find_workspace_root(tmp_path / "real" / "fix") == repository
    )


@pytest.mark.parametrize("kind", ["pipe", "large", "not text", "to itself"])
def test_an_unusable_git_file_leaves_the_folder_its_own_workspace(tmp_path: Path, kind: str) -> None:
    folder = tmp_path.resolve() / "odd"
    add_worktree(tmp_path.resolve() / "shop", folder)
    back = tmp_path / "shop" / ".git" / "worktrees" / "odd" / "gitdir"
    back.unlink()
    if kind == "pipe":
        os.mkfifo(back)
    elif kind == "large":
        back.write_text(f"{folder / '.git'}{' ' * 100_000}", encoding="utf-8")
    elif kind == "not text":
        back.write_bytes(b"\xff\0\n")
    else:
        back.symlink_to("gitdir")
    assert find_workspace_root(folder) == folder


def test_a_submodule_is_a_workspace_of_its_own(repository: Path) -> None:
    module = repository / "module"
    module.mkdir()
    (module / ".git").write_text("gitdir: ../.git/modules/module\n", encoding="utf-8")
    assert find_workspace_root(module) == module


def test_a_folder_without_git_is_its_own_workspace(tmp_path: Path) -> None:
    assert find_workspace_root(tmp_path) == tmp_path.resolve()


def test_a_link_to_a_folder_is_that_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert find_workspace_root(tmp_path / "link") == (tmp_path / "real").resolve()


def test_home_and_the_root_are_no_workspaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert find_workspace_root(tmp_path) is None
    assert find_workspace_root(Path(tmp_path.anchor)) is None


def test_a_folder_below_home_is_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "notes").mkdir()
    assert find_workspace_root(tmp_path / "notes") == (tmp_path / "notes").resolve()


def test_a_folder_is_known_by_its_workspace(tmp_path: Path) -> None:
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    below = tmp_path / "shop" / "gone" / "deep"
    assert find_workspace_key(str(below)) == str((tmp_path / "shop").resolve())
    assert find_workspace_key("shop") is None
    assert find_workspace_key(str(Path.home())) is None


@pytest.mark.parametrize("below", ["circle/below", "a\0b"])
def test_a_folder_that_cannot_be_looked_at_is_nobody_elses(tmp_path: Path, below: str) -> None:
    (tmp_path / "circle").symlink_to("circle")
    odd = f"{tmp_path.resolve()}/{below}"
    assert find_workspace_key(odd) in (None, odd)  # versions of Python differ
