from pathlib import Path

import pytest

from everkept.families.gateway.file_reader import parse_file
from gateway_files import HERE, in_server, refused


@pytest.mark.parametrize(
    ("through", "is_trusted"), [("true", False), ("{}", False), ('{"trustReadOnlyHint": true}', True)]
)
def test_a_server_is_not_believed_that_its_tools_only_read_unless_the_file_says_so(
    through: str, is_trusted: bool
) -> None:
    text = in_server(f'"command": "x", "passThrough": {through}')
    config = parse_file(text, Path("/etc/gateway").absolute()).config
    assert config is not None
    passed = config.upstreams["upstream"].pass_through
    assert passed is not None
    assert passed.trusts_read_only_hint is is_trusted


def test_whether_a_server_is_believed_is_true_or_false() -> None:
    body = f'"command": "x", "passThrough": {{\n"trustReadOnlyHint": "yes" {HERE}\n}}'
    assert "true or false" in refused(in_server(body))


def test_the_example_of_the_documentation_can_be_read() -> None:
    page = (Path(__file__).parents[3] / "docs" / "gateway.md").read_text(encoding="utf-8")
    (block,) = [part for part in page.split("```jsonc\n")[1:] if part.startswith('"passThrough": {\n')]
    example = block.partition("```")[0]
    assert parse_file(in_server(f'"command": "x",\n{example}'), Path("/etc").absolute()).problems == []
