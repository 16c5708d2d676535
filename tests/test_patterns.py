import copy
import re
import subprocess
import sys

import pytest

from everkept.patterns import compile_late

# Modules that a start or a hook loads, and whose patterns it seldom uses.
MODULES = [
    "everkept.core.context_text",
    "everkept.core.mcp",
    "everkept.core.secret_forms",
    "everkept.core.secret_values",
    "everkept.core.secrets",
    "everkept.core.text",
    "everkept.embedders.onnx",
    "everkept.language.code_names",
    "everkept.language.past_forms",
    "everkept.language.sentences",
    "everkept.language.spellings",
    "everkept.language.telling_words",
    "everkept.language.words",
    "everkept.retrieval.dates",
    "everkept.settings.setting_values",
]
COUNT = """
import importlib, re, sys
compilers = []
real = re.compile
def compile(*given):
    compilers.append(sys._getframe(1).f_globals["__name__"])
    return real(*given)
re.compile = compile
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*compilers)
"""


def test_loading_a_module_compiles_none_of_its_patterns() -> None:
    ended = subprocess.run([sys.executable, "-c", COUNT, *MODULES], capture_output=True, text=True, check=True)
    assert not {*MODULES, "everkept.patterns"} & set(ended.stdout.split())


def test_a_pattern_does_what_the_compiled_one_does() -> None:
    late, now = compile_late(r"(a)|b", re.IGNORECASE), re.compile(r"(a)|b", re.IGNORECASE)
    text = "xAbA"
    assert late.search(text) is not None
    assert late.fullmatch(text) is None
    assert [m.span() for m in late.finditer(text)] == [m.span() for m in now.finditer(text)]
    assert late.sub("-", text) == now.sub("-", text)
    assert late.split(text) == now.split(text)
    assert (late.pattern, late.flags, late.groups) == (now.pattern, now.flags, now.groups)
    assert compile_late(rb"\d").findall(b"1a2") == [b"1", b"2"]


def test_it_is_compiled_once_and_at_its_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    real = re.compile
    monkeypatch.setattr(re, "compile", lambda *given: compiled.append(given) or real(*given))
    late = compile_late("a")
    assert copy.copy(late).pattern == "a"
    assert compiled == []
    assert late.match("a")
    assert late.match("a")
    assert late.search("ba")
    assert compiled == [("a", 0)]


def test_a_wrong_pattern_fails_when_it_is_used() -> None:
    late = compile_late("(")
    with pytest.raises(re.error):
        late.match("")
