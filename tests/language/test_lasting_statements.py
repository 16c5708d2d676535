import pytest

from everkept.language.lasting_statements import MAX_CHARACTERS, find_statements


def kinds(text: str) -> list[str]:
    return [statement.kind for statement in find_statements(text)]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("We always squash commits before a merge.", "rule"),
        ("Never push to main without a review.", "rule"),
        ("Please never use tabs in this project.", "rule"),
        ("Don't ever log the customer's address.", "rule"),
        ("From now on, use uv instead of pip.", "rule"),
        ("Going forward the API returns camel case.", "rule"),
        ("You must always run the linter first.", "rule"),
        ("In this repo we never mock the database.", "rule"),
        ("And always add a test for a bug.", "rule"),
        ("I prefer small functions over comments.", "preference"),
        ("For Python I'd really prefer ruff over flake8.", "preference"),
        ("My preference is dark mode in screenshots.", "preference"),
        ("I don't like when answers begin with praise.", "preference"),
        ("We decided to use PostgreSQL for the orders.", "decision"),
    ],
)
def test_a_lasting_statement_has_its_kind(text: str, kind: str) -> None:
    assert kinds(text) == [kind]


@pytest.mark.parametrize(
    "text",
    [
        "Why does the build always fail on Mondays?",
        "The server always crashes after an hour.",
        "Never mind, it works now again.",
        "I have never seen this error before.",
        "We never had this problem on the old server.",
        "Would you prefer tabs or spaces here?",
        "It is always the same file that breaks.",
        "We always used tabs in the old code.",
        "Never do.",
        "Fix the test in the parser, please.",
        "> We always squash commits before a merge.",
        "```\nNever push to main without a review.\n```",
        "I prefer " + "very " * MAX_CHARACTERS + "long sentences.",
    ],
)
def test_a_question_a_story_or_a_quotation_states_nothing(text: str) -> None:
    assert kinds(text) == []


def test_only_the_sentences_that_state_something_are_found_in_order() -> None:
    text = "The build fails.\n- Never push to main without a review.\nCan you look? I prefer short  answers, always."
    assert [each.text for each in find_statements(text)] == [
        "Never push to main without a review.",
        "I prefer short answers, always.",
    ]
