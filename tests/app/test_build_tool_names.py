from pathlib import Path

import pytest

from everkept.app.build import TOOL_FAMILIES, build_parts
from everkept.core.times import read_clock
from everkept.settings import OWN_TOOLSETS, Settings
from everkept.settings.model import Dialect


@pytest.mark.parametrize("dialect", ["everkept", "server-memory"])
def test_every_tool_is_known_by_its_family(tmp_path: Path, dialect: Dialect) -> None:
    """One that is missing is found, but by loading all families."""
    families = OWN_TOOLSETS if dialect == "everkept" else ("graph",)
    for family in families:
        settings = Settings(tmp_path, toolsets=family, dialect=dialect, bank_extras=True)
        tools = build_parts(settings, None, None, read_clock).tools
        names = {name for tool in tools for name in (tool.name, *tool.aliases)}
        known = {name for name, of in TOOL_FAMILIES.items() if of == family}
        assert names <= known, f"add the tools of {family} to app/build.py"
        if dialect == "everkept":
            assert names == known, family
