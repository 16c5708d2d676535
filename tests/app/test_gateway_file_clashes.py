from pathlib import Path

import pytest

from everkept.app.gateway_file import refuse_clashes
from everkept.errors import InvalidInput
from everkept.families.gateway.model import GatewayConfig, ToolConfig

TOOLS = tuple(
    ToolConfig(name, "", {"type": "object"}, "upstream", name, {}, line=line)
    for line, name in enumerate(("search", "read", "store"), 3)
)


def test_names_of_their_own_are_fine() -> None:
    refuse_clashes(Path("tools.json"), GatewayConfig({}, TOOLS), {"recall", "Search"})


def test_the_first_name_that_is_taken_is_told_with_its_line() -> None:
    with pytest.raises(InvalidInput) as caught:
        refuse_clashes(Path("tools.json"), GatewayConfig({}, TOOLS), {"store", "read"})
    assert (caught.value.facts["file"], caught.value.facts["line"]) == ("tools.json", 4)
    assert '"read"' in caught.value.message
