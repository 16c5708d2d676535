import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.hooks.shell_commands import condense_command, find_purpose, is_trivial
from server_processes import HANG

HOSTILE = f"""
from everkept.core.secrets import mask_text
from everkept.hooks.unhandled import end_after
from everkept.hooks.shell_commands import condense_command, is_trivial, find_purpose
from everkept.hooks.shell_commands import clean_output, compute_signatures
from everkept.hooks.shell_commands import extract_error_lines, find_outcome
from everkept.hooks.events import HookEvent
end_after({HANG})
commands = [
    "x <<" + "A" * 400 + "\\n" * 2500,
    "x <<" + "A" * 3000 + "\\n" + "b\\n" * 3000,
    "x <<A\\n" * 2500,
    "x <<'" + "A" * 9000,
    "<<" + " " * 9000 + "<<",
    "<<" * 5000,
    'echo ' + '"a\\\\' * 3000,
    '"' * 9999,
    "\\\\" * 9999,
    "a'" * 4501,
    "A=B " * 2400,
    "sudo " * 2000,
    "a|" * 5000,
]
for command in commands:
    condense_command(command), is_trivial(command), find_purpose(command)
outputs = [
    "error " + "1" * 19000,
    "error[" + "a" * 19000,
    "Error" * 4000,
    "Error" + " " * 19000,
    "errors:" + " " * 19000,
    "1" * 19000,
    "1 " * 9500,
    "E" + " " * 19000,
    "\\x1b[" * 9000 + "3" * 1000,
    "exit " * 4000,
    "0x" * 9000,
]
for output in outputs:
    text = clean_output(output)
    compute_signatures(extract_error_lines(mask_text(text)[0]))
    find_outcome(HookEvent("PostToolUse", tool_response=output), "test")
"""

PURPOSES = {
    "pytest -q": "test",
    "cd api && python -m pytest -x 2>&1 | tail -20": "test",
    "PYTHONPATH=. .venv/bin/python -m pytest": "test",
    "uv run pytest tests/a.py -k 'a and b'": "test",
    "timeout 60 go test ./...": "test",
    "npm test": "test",
    "npm run test:unit -- --watch=false": "test",
    "./test": "test",
    "make test": "test",
    "./gradlew test": "test",
    "cargo build --release": "build",
    "npm run build": "build",
    "make": "build",
    "npx tsc --noEmit": "build",
    "npm install express": "install",
    "npm ci && npm run build": "install",
    "sudo apt-get install -y jq": "install",
    "uv pip install -e .": "install",
    "pip install -r requirements.txt": "install",
    "python manage.py migrate": "migrate",
    "alembic upgrade head": "migrate",
    "npx prisma migrate dev": "migrate",
    "docker compose up -d": "docker",
    "docker build -t shop .": "docker",
    "terraform plan": "terraform",
    "cdk synth": "cdk",
    "cdk deploy": "deploy",
    "kubectl apply -f shop.yml": "deploy",
    "./deploy.sh production": "deploy",
    "yarn deploy:prod": "deploy",
    "git push": None,
    "git commit -m 'npm test; make build && deploy'": None,
    "docker ps": None,
    "pip list": None,
    "grep -rn deploy .": None,
    "mkdir build": None,
    "echo pytest": None,
    "cat <<'EOF' > run.sh\nnpm install\npytest\nEOF": None,
    "python script.py": None,
}


@pytest.mark.parametrize(("command", "wanted"), PURPOSES.items())
def test_a_command_is_known_by_the_program_that_does_the_work(command: str, wanted: str | None) -> None:
    assert find_purpose(command) == wanted


@pytest.mark.parametrize(
    "command",
    [
        "ls -la | grep login",
        "git status && git diff --stat",
        "cd src; rg -n 'def login' | head -5",
        "test -f setup.py",
        "cat <<EOF\nnpm test\nEOF",
        "Get-ChildItem . | Select-String login",
        "rm -rf build && mkdir build",
        "",
    ],
)
def test_looking_around_and_tidying_up_is_trivial(command: str) -> None:
    assert is_trivial(command)


@pytest.mark.parametrize("command", ["pytest", "ls && make", "git commit -m x", "./ls", "python x.py"])
def test_whatever_does_something_is_not(command: str) -> None:
    assert not is_trivial(command)


@pytest.mark.parametrize(
    "command",
    [
        "pytest -q",
        "cd /home/dev/shop && pytest -q",
        "pytest -q 2>&1 | tail -20",
        "pytest   -q > out.txt 2>&1 || true",
        "source .venv/bin/activate && pytest -q | grep FAILED; echo done",
    ],
)
def test_where_it_runs_and_what_becomes_of_its_output_makes_no_other_command(command: str) -> None:
    assert condense_command(command) == "pytest -q"


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("set -e; cd api; make; exit $?", "make"),
        ("make || exit 1", "make"),
        ("echo 'step 42 failed' >&2; exit 3", "echo 'step 42 failed' ; exit 3"),
        ("test -f setup.py || exit 1", "test -f setup.py || exit 1"),
        ("exit 3", "exit 3"),
    ],
)
def test_what_ends_a_script_is_not_what_was_run(command: str, wanted: str) -> None:
    assert condense_command(command) == wanted
    assert not is_trivial(command)


def test_what_is_quoted_stays_as_it_is() -> None:
    assert condense_command("git commit -m 'a; b > c | d'") == "git commit -m 'a; b > c | d'"


@given(st.text(alphabet="ab '\"\\|&;<>$(){}\n#=-./", max_size=60) | st.text(max_size=60))
def test_any_text_can_be_read_and_its_essence_has_no_other(command: str) -> None:
    assert condense_command(condense_command(command)) == condense_command(command)
    assert find_purpose(command) is None or not is_trivial(command)


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("make <<'EOF' 2>&1\npytest\nEOF", "make"),
        ("make <<-EOF && npm test\n\tpytest\n\tEOF\nnpm run build", "make && npm test ; npm run build"),
        ("make <<A <<B\npytest\nA\nnpm test\nB\ntox", "make ; tox"),
        ("make <<EOF\npytest", "make ; pytest"),  # it has no end: no heredoc
        ("make <<<EOF\ntox\nEOF", "make ; tox ; EOF"),  # one word alone is given
        ("echo $((1 << 3))\ntox", "tox"),
    ],
)
def test_what_a_program_is_given_to_read_is_no_command(command: str, wanted: str) -> None:
    assert condense_command(command) == wanted


def test_no_command_and_no_output_takes_longer_than_its_length_allows() -> None:
    """Each of them took minutes once, or would with an expression that tries all ways."""
    process = subprocess.run([sys.executable, "-c", HOSTILE], check=False, timeout=2 * HANG)
    assert process.returncode == 0
