import pytest

from gateway_files import HERE, in_server, refused

URL = '"url": "https://example.org/mcp",\n'
COMMAND = '"command": "notes",\n'


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (f'"command": 5 {HERE}', "5"),
        (f'"command": " " {HERE}', "empty"),
        (f'"command": "a\\u0000b" {HERE}', "character"),
        (f'{COMMAND}"args": "-y" {HERE}', "a list"),
        (f'{COMMAND}"args": [\n"-y",\n7 {HERE}\n]', "`upstream.args[1]`"),
        (f'{COMMAND}"env": ["A=b"] {HERE}', "an object"),
        (f'{COMMAND}"env": {{\n"A": 1 {HERE}\n}}', "`upstream.env.A`"),
        (f'{COMMAND}"env": {{\n"A": "b\\nc" {HERE}\n}}', "line break"),
        (f'{COMMAND}"env": {{\n"A=B": "c" {HERE}\n}}', '"A=B"'),
        (f'{COMMAND}"env": {{\n"": "c" {HERE}\n}}', "not be empty"),
        (f'{COMMAND}"env": {{\n"A": "${{" {HERE}\n}}', "`${MY_TOKEN}`"),
        (f'{COMMAND}"env": {{\n"A": "${{A B}}" {HERE}\n}}', "`${MY_TOKEN}`"),
        (f'{COMMAND}"env": {{\n"A": "${{OK}} ${{1}}" {HERE}\n}}', "`${MY_TOKEN}`"),
        (f'{COMMAND}"env": {{\n"A": "${{A:-b}}" {HERE}\n}}', "Default values"),
        (f'{COMMAND}"env": {{\n"A": 5 {HERE}\n}}', "is a number"),
        (f'{COMMAND}"env": {{\n"A": [1] {HERE}\n}}', "or a list"),
        (f'{COMMAND}"cwd": true {HERE}', "a text"),
        (f'{COMMAND}"headers": {{}} {HERE}', "`headers` requires `url`"),
        (f'{COMMAND}"cmd": "x" {HERE}', "`command`"),
        (f'{COMMAND}"retries": 3 {HERE}', "Known: args"),
        (f'{COMMAND}"type": "stdio" {HERE}', "Remove it"),
        (f'{COMMAND}"url": "https://example.org/mcp" {HERE}', "both"),
        (f'{URL}"args": [] {HERE}', "`args` requires `command`"),
        (f'{URL}"env": {{}} {HERE}', "`env` requires `command`"),
        (f'{URL}"cwd": "x" {HERE}', "`cwd` requires `command`"),
        (f'"url": 1 {HERE}', "a text"),
        (f'"url": "ftp://example.org" {HERE}', "ftp"),
        (f'"url": "example.org/mcp" {HERE}', "http"),
        (f'"url": "https://" {HERE}', "no host"),
        (f'"url": "https:///mcp" {HERE}', "no host"),
        (f'"url": "https://a b/mcp" {HERE}', "whitespace"),
        (f'"url": "https://example.org:x/mcp" {HERE}', "port"),
        (f'"url": "https://[::1/mcp" {HERE}', "host"),
        (f'"url": "https://me@example.org/mcp" {HERE}', "credentials"),
        (f'{URL}"headers": [] {HERE}', "an object"),
        (f'{URL}"headers": {{\n"A B": "c" {HERE}\n}}', '"A B"'),
        (f'{URL}"headers": {{\n"A": 1 {HERE}\n}}', "a text"),
        (f'{URL}"headers": {{\n"A": "b\\r\\nC: d" {HERE}\n}}', "line break"),
        (f'{URL}"headers": {{\n"A": "é" {HERE}\n}}', "a header cannot"),
        (f'{URL}"headers": {{\n"A": "b",\n"a": "c" {HERE}\n}}', "line 5"),
        (f'{URL}"headers": {{\n"Mcp-Session-Id": "c" {HERE}\n}}', "connection itself"),
        (f'{COMMAND}"connectTimeout": 0 {HERE}', "more than 0"),
        (f'{COMMAND}"callTimeout": -1.5 {HERE}', "-1.5"),
        (f'{COMMAND}"callTimeout": 86401 {HERE}', "86400"),
        (f'{COMMAND}"callTimeout": "60" {HERE}', "a number"),
        (f'{COMMAND}"callTimeout": true {HERE}', "a number"),
        (f'{COMMAND}"timeout": 60 {HERE}', "`callTimeout`"),
        (f'{COMMAND}"start": "now" {HERE}', '"first-use" or "at-start"'),
        (f'{COMMAND}"start": ["at-start"] {HERE}', '"first-use" or "at-start"'),
        (f'{COMMAND}"passThrough": "all" {HERE}', "true"),
        (f'{COMMAND}"passThrough": {{\n"pre": "a_" {HERE}\n}}', "`prefix`"),
        (f'{COMMAND}"passThrough": {{\n"prefix": "a b" {HERE}\n}}', '"a b"'),
        (f'{COMMAND}"passThrough": {{\n"only": "a" {HERE}\n}}', "a list"),
        (f'{COMMAND}"passThrough": {{\n"only": [\n1 {HERE}\n]}}', "a text"),
        (f'{COMMAND}"passThrough": {{\n"only": ["a", "a"] {HERE}\n}}', "twice"),
        (f'{COMMAND}"passThrough": {{"only": ["a"],\n"hide": ["a"] {HERE}\n}}', "`only`"),
        (f'{COMMAND}"passThrough": {{\n"rename": ["a"] {HERE}\n}}', "an object"),
        (f'{COMMAND}"passThrough": {{"rename": {{\n"a": "b c" {HERE}\n}}}}', '"b c"'),
        (f'{COMMAND}"passThrough": {{"hide": ["a"], "rename": {{\n"a": "b" {HERE}\n}}}}', "`hide`"),
        (f'{COMMAND}"passThrough": {{"only": ["b"], "rename": {{\n"a": "c" {HERE}\n}}}}', "`only`"),
    ],
)
def test_what_is_wrong_with_a_server_is_told_with_its_line(body: str, word: str) -> None:
    assert word in refused(in_server(body))


def test_a_server_must_be_an_object_that_says_how_it_is_reached() -> None:
    assert "neither" in refused(f'{{\n"upstream": {{}}, {HERE}\n"tools": []}}')
    assert "an object" in refused(f'{{\n"upstream": "npx -y notes", {HERE}\n"tools": []}}')


def test_a_working_folder_at_a_home_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert "home folder" in refused(in_server(f'{COMMAND}"cwd": "~nobody/x" {HERE}'))
