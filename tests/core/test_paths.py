from pathlib import Path

import pytest

from everkept.core.paths import FolderExclusion, Parts, is_within, split_exact, split_loose


@pytest.mark.parametrize(
    ("pattern", "folder"),
    [
        ("/work/secret", "/work/secret"),
        ("/work/secret", "/work/secret/"),
        ("/work/secret/", "/work/secret"),
        ("/work/secret", "/work/secret/deep/down"),
        ("/work/*", "/work/any/thing"),
        ("/work/*-private", "/work/a-private/src"),
        ("/work/?", "/work/a"),
        ("/work/**/keys", "/work/a/b/keys"),
        ("~/diary", "/home/ada/diary/2024"),
        ("~", "/home/ada/x"),
        ("secret", "/work/secret"),
        ("secret", "/work/secret/src"),
        ("client-*", "/work/client-x/src"),
        ("*/secret", "/home/ada/work/secret"),
        ("work/secret", "/home/ada/work/secret/src"),
        ("/", "/anything"),
        ("C:\\Work\\Secret", "c:\\work\\secret\\src"),
        ("C:/work/secret", "C:\\Work\\SECRET"),
        ("Secret", "D:\\x\\sEcReT"),
        ("\\\\host\\share", "\\\\HOST\\Share\\x"),
        (" /work/secret ", "/work/secret"),
        ("/work/a+b (c)", "/work/a+b (c)/d"),
    ],
)
def test_a_folder_and_all_below_it_is_left_out(pattern: str, folder: str) -> None:
    assert FolderExclusion([pattern], home=Path("/home/ada")).is_excluded(folder)


@pytest.mark.parametrize(
    ("pattern", "folder"),
    [
        ("/work/secret", "/work/secrets"),
        ("/work/secret", "/work"),
        ("/work/secret", "/home/work/secret"),
        ("/work/secret", "/work/Secret"),
        ("/work/*/keys", "/work/a/b/keys"),
        ("/work/?", "/work/ab"),
        ("~/diary", "/home/bob/diary"),
        ("secret", "/work/secrets"),
        ("work/secret", "/homework/secret"),
        ("", "/work"),
        ("  ", "/work"),
        ("/work", ""),
        ("*", ""),
    ],
)
def test_other_folders_stay(pattern: str, folder: str) -> None:
    assert not FolderExclusion([pattern], home=Path("/home/ada")).is_excluded(folder)


def test_a_folder_that_is_not_known_stays() -> None:
    assert not FolderExclusion(["*", "/"]).is_excluded(None)
    assert FolderExclusion(["*", "/"]).pattern_of("") is None


def test_it_can_be_asked_which_pattern_it_was() -> None:
    assert FolderExclusion(["/a", "/b"]).pattern_of("/b/c") == "/b"


@pytest.mark.parametrize(
    ("folder", "other", "is_it"),
    [
        ("/p", "/p", True),
        ("/p/x", "/p/", True),
        ("/px", "/p", False),
        ("/p/ab", "/p/a?", False),
        ("/p", "/p/x", False),
        ("shop", "shop", True),
        ("/x/shop", "shop", False),
        ("c:\\P\\x", "C:\\p", True),
        ("", "/", False),
        (None, "/p", False),
    ],
)
def test_a_folder_is_within_another(folder: str | None, other: str, is_it: bool) -> None:
    assert is_within(folder, [other]) == is_it


@pytest.mark.parametrize(
    ("path", "exact", "loose"),
    [
        ("/home/Ann//shop/", ("/", "home", "Ann", "shop"), ("/", "home", "ann", "shop")),
        ("C:\\Users\\Ann", ("c:", "users", "ann"), ("c:", "users", "ann")),
        ("\\\\host\\Work", ("//", "host", "work"), ("/", "host", "work")),
        ("~/Shop", ("~", "Shop"), ("shop",)),
        ("./a\\b", (".", "a\\b"), ("a", "b")),
        ("/", ("/",), ()),
        ("", (), ()),
    ],
)
def test_a_path_is_compared_as_its_machine_does_or_loosely(path: str, exact: Parts, loose: Parts) -> None:
    assert split_exact(path) == exact
    assert split_loose(path) == loose


def test_nothing_is_within_the_root() -> None:
    assert not is_within("/srv", ["/"])
    assert not is_within("/", ["/"])
    assert not is_within("\\\\srv\\a", ["/srv"])
