import pytest

from gateway_files import HERE, in_target, in_tool, refused

TOOL = '"tool": "search",\n'
MAPPED = f'{TOOL}"paramMapping": {{"q": "a.b", "n": "c"}},\n'


@pytest.mark.parametrize(
    ("key", "body", "word"),
    [
        ("name", f"{HERE}", "no `name`"),
        ("name", f'\n"name": "", {HERE}', "1 to 128"),
        ("name", f'\n"name": "a b", {HERE}', '"a b"'),
        ("name", f'\n"name": "{"a" * 129}", {HERE}', "128"),
        ("name", f'\n"name": 7, {HERE}', "7"),
        ("description", f"{HERE}", "no `description`"),
        ("description", f'\n"description": null, {HERE}', "null"),
        ("inputSchema", f"{HERE}", "no `inputSchema`"),
        ("inputSchema", f'\n"inputSchema": [], {HERE}', "an object"),
        ("inputSchema", f'\n"inputSchema": {{}}, {HERE}', "is missing"),
        ("inputSchema", f'\n"inputSchema": {{"type": "string"}}, {HERE}', '"string"'),
        ("inputSchema", f'\n"inputSchema": {{"type": ["object"]}}, {HERE}', '["object"]'),
        ("upstream", f"{HERE}", "no `upstream`"),
        ("upstream", f'\n"upstream": "search", {HERE}', "an object"),
        ("", f'\n"title": 5, {HERE}', "a text"),
        ("", f'\n"titel": "Find", {HERE}', "`title`"),
        ("", f'\n"parameters": {{}}, {HERE}', "`inputSchema`"),
        ("", f'\n"paramMapping": {{}}, {HERE}', "Move it into `upstream`"),
        ("", f'\n"annotations": true, {HERE}', "an object"),
        ("", f'\n"annotations": {{"readOnlyHint": "yes"}}, {HERE}', "true or false"),
        ("", f'\n"annotations": {{"title": 1}}, {HERE}', "a text"),
        ("", f'\n"outputSchema": {{"properties": {{}}}}, {HERE}', "is missing"),
    ],
)
def test_what_is_wrong_with_a_tool_is_told_with_its_line(key: str, body: str, word: str) -> None:
    assert word in refused(in_tool(body, without=key))


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (f'{MAPPED}"server": "notes" {HERE}', '"notes"'),
        (f'{MAPPED}"server": "upstrem" {HERE}', "`upstream`"),
        (f'{MAPPED}"mapping": {{}} {HERE}', "`paramMapping`"),
        (f'"paramMapping": {{}},\n"tool": "" {HERE}', "empty"),
        (f'{TOOL}"paramMapping": ["q"] {HERE}', "an object"),
        (f'{TOOL}"paramMapping": {{\n"q": ["a"] {HERE}\n}}', "a text"),
        (f'{TOOL}"paramMapping": {{\n"q": "" {HERE}\n}}', "empty"),
        (f'{TOOL}"paramMapping": {{\n"q": "a..b" {HERE}\n}}', "empty part"),
        (f'{TOOL}"paramMapping": {{\n"q": ".a" {HERE}\n}}', "empty part"),
        (f'{TOOL}"paramMapping": {{\n"q": "a." {HERE}\n}}', "empty part"),
        (f'{TOOL}"paramMapping": {{\n"q": "a\\\\b" {HERE}\n}}', "backslash"),
        (f'{TOOL}"paramMapping": {{"q": "a",\n"n": "a" {HERE}\n}}', "conflicts with"),
        (f'{TOOL}"paramMapping": {{"q": "a",\n"n": "a.b" {HERE}\n}}', "conflicts with"),
        (f'{TOOL}"paramMapping": {{"q": "a.b",\n"n": "a" {HERE}\n}}', "line "),
        (f'{MAPPED}"constants": [] {HERE}', "an object"),
        (f'{MAPPED}"constants": {{\n"": 1 {HERE}\n}}', "empty part"),
        (f'{MAPPED}"constants": {{\n"a": 1 {HERE}\n}}', '"a.b"'),
        (f'{MAPPED}"constants": {{\n"a.b": 1 {HERE}\n}}', "same place"),
        (f'{MAPPED}"constants": {{"d": 1,\n"d.e": 1 {HERE}\n}}', "same place"),
        (f'{MAPPED}"defaults": 5 {HERE}', "an object"),
        (f'{MAPPED}"defaults": {{\n"m": 1 {HERE}\n}}', "`paramMapping`"),
    ],
)
def test_what_is_wrong_with_the_tool_behind_it_is_told_with_its_line(body: str, word: str) -> None:
    assert word in refused(in_target(body))


def test_the_tool_behind_it_needs_a_name_and_a_mapping() -> None:
    lacking = f'\n"upstream": {{"paramMapping": {{}}}}, {HERE}'
    assert "no `tool`" in refused(in_tool(lacking, without="upstream"))
    lacking = f'\n"upstream": {{"tool": "search"}}, {HERE}'
    assert "{} for none" in refused(in_tool(lacking, without="upstream"))


def test_where_there_are_several_servers_a_tool_must_name_its_own() -> None:
    text = in_tool(f'\n"upstream": {{"tool": "a", "paramMapping": {{}}}}, {HERE}', without="upstream")
    several = text.replace(
        '"upstream": {"command": "x"}', '"upstreams": {"one": {"command": "x"}, "two": {"command": "y"}}'
    )
    assert "one of one, two" in refused(several)
