"""Reading gateway files in tests, and finding the line that should be refused."""

from pathlib import Path

from everkept.families.gateway.file_reader import parse_file

HERE = "// here"  # a comment at the end of the line that has a problem


def refused(text: str) -> str:
    """The one problem of a file, which is in the line that is marked."""
    found = parse_file(text, Path("/etc/gateway").absolute())
    (marked,) = (n for n, line in enumerate(text.splitlines(), 1) if line.endswith(HERE))
    assert [problem.line for problem in found.problems] == [marked], found.problems
    assert found.config is None
    problem = found.problems[0]
    assert problem.message.endswith(".")
    assert problem.fix.endswith((".", "?"))
    return str(problem)


def in_server(body: str) -> str:
    """A file with this inside its server."""
    return f'{{\n"upstream": {{\n{body}\n}},\n"tools": []\n}}'


def in_tool(body: str, *, without: str = "") -> str:
    """A file with this inside its tool, whose other keys are right."""
    keys = {
        "name": '"name": "find",',
        "description": '"description": "Finds.",',
        "inputSchema": '"inputSchema": {"type": "object", "properties": {"q": {}, "n": {}}},',
        "upstream": '"upstream": {"tool": "search", "paramMapping": {"q": "query"}},',
    }
    rest = "\n".join(text for key, text in keys.items() if key != without)
    return f'{{\n"upstream": {{"command": "x"}},\n"tools": [\n{{{body}\n{rest}\n}}\n]\n}}'


def in_target(body: str) -> str:
    """A file with this inside what a tool becomes."""
    return in_tool(f'\n"upstream": {{\n{body}\n}},', without="upstream")
