"""Which conversations belong to a project, by the folder they were led in."""

from pathlib import Path

from everkept.hooks.prompting.folders import Folders


def test_the_folders_of_a_repository_are_those_at_and_below_its_root(tmp_path: Path) -> None:
    root = tmp_path / "shop"
    (root / ".git").mkdir(parents=True)
    (root / "web").mkdir()
    known = [str(root), str(root / "web"), str(tmp_path / "shop-2"), str(tmp_path), ""]
    for inside in (root, root / "web"):
        assert Folders.around(inside).among(known) == (str(root), str(root / "web"))


def test_a_worktree_has_the_conversations_of_its_main_checkout(tmp_path: Path) -> None:
    main, tree = tmp_path / "main", tmp_path / "tree"
    (main / ".git" / "worktrees" / "tree").mkdir(parents=True)
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {main / '.git' / 'worktrees' / 'tree'}\n", "utf-8")
    assert set(Folders.around(tree).among([str(main), str(tree)])) == {str(main), str(tree)}
    assert Folders.around(main).among([str(main), str(tree)]) == (str(main),)


def test_case_and_separators_do_not_tell_folders_apart(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    other = str(tmp_path).upper().replace("/", "\\") + "\\"
    assert Folders.around(tmp_path).among([other]) == (other,)


def test_the_home_folder_is_a_project_only_by_itself() -> None:
    home = Path.home().resolve()
    assert Folders.around(home).among([str(home), str(home / "shop")]) == (str(home),)


def test_nowhere_is_no_folder() -> None:
    assert Folders.around(None).among(["/home/dev", ""]) == ()
