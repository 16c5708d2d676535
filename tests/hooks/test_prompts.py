"""Which prompts are worth a look at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.hooks.prompts import (
    HEAD_CHARACTERS,
    MAX_ERROR_WORDS,
    TAIL_CHARACTERS,
    PromptSignals,
    compute_complexity,
    extract_error_lines,
    extract_error_words,
    find_reason,
    is_debugging,
    is_feature_request,
    is_how_to,
    normalize_error,
    parse_prompt,
    shorten_prompt,
)


@pytest.mark.parametrize(
    "prompt", ["", " ", "yes", "go on", "thanks", "/clear", "/review src", "!ls -la", "<bash-input>ls", "ok?"]
)
def test_a_trivial_prompt_is_not_read_on(prompt: str) -> None:
    assert parse_prompt(prompt) is None


def test_a_path_is_no_command() -> None:
    assert parse_prompt("/srv/app/redis.conf has a wrong password policy for replicas") is not None


def test_three_telling_words_are_needed_two_with_a_hint_and_one_with_a_question_for_it() -> None:
    assert parse_prompt("redis replicas") is None
    assert parse_prompt("redis replicas sentinel") is not None
    assert parse_prompt("redis again") is None
    assert parse_prompt("redis replicas again") is not None
    assert parse_prompt("how did we replicate redis before") is not None
    assert parse_prompt("how did we do it before") is None
    assert parse_prompt("wie haben wir das letztes Mal gemacht?") is None
    assert parse_prompt("AssertionError: assert 1 == 2") is not None


def test_a_question_for_all_that_was_done_has_no_words() -> None:
    reading = parse_prompt("what did we do yesterday?")
    assert reading is not None
    assert reading.words == ()


def test_a_short_topic_is_told_by_the_rest_of_the_prompt() -> None:
    reading = parse_prompt("Which queue did we pick for the newsletter mailer?")
    assert reading is not None
    assert [word.text for word in reading.words] == ["queue", "newsletter", "mailer"]


def test_a_long_prompt_is_read_in_parts_and_so_is_its_error() -> None:
    log = "\n".join(f"step {n} of nightly reindex done" for n in range(5_000))
    reading = parse_prompt(f"{log}\nReindexError: shard seven went missing")
    assert reading is not None
    assert len(reading.prompt) < 5_000
    assert reading.is_debugging
    assert [word.text for word in reading.error] == ["reindexerror", "shard", "seven"]


def test_of_a_long_prompt_the_beginning_and_the_end_are_read() -> None:
    prompt = "begin " + "x" * 100_000 + " end"
    part = shorten_prompt(prompt)
    assert len(part) <= HEAD_CHARACTERS + TAIL_CHARACTERS + 1
    assert part.startswith("begin ")
    assert part.endswith(" end")


@pytest.mark.parametrize(
    ("above", "reason"),
    [
        (PromptSignals(similarity_to_past=0.701), "similar work"),
        (PromptSignals(asking_how_to=True, complexity=0.501), "how to"),
        (PromptSignals(debugging=True, error_similarity=0.601), "similar error"),
        (PromptSignals(new_feature=True, domain_overlap=0.501), "related feature"),
    ],
)
def test_above_its_bound_a_condition_is_a_reason(above: PromptSignals, reason: str) -> None:
    assert find_reason(above) == reason


@pytest.mark.parametrize(
    "at_most",
    [
        PromptSignals(similarity_to_past=0.7),
        PromptSignals(asking_how_to=True, complexity=0.5),
        PromptSignals(debugging=True, error_similarity=0.6),
        PromptSignals(new_feature=True, domain_overlap=0.5),
        # A number alone is no reason where a sign must go with it.
        PromptSignals(complexity=1.0, error_similarity=1.0, domain_overlap=1.0),
        PromptSignals(asking_how_to=True, debugging=True, new_feature=True),
    ],
)
def test_at_its_bound_or_without_its_sign_it_is_none(at_most: PromptSignals) -> None:
    assert find_reason(at_most) is None


@pytest.mark.parametrize(
    "prompt",
    [
        "How do I rotate the keys?",
        "how can we cache this",
        "How to rotate keys",
        "What's the best way to rotate keys?",
        "How is the token bucket implemented?",
        "show me how this is tested",
    ],
)
def test_asking_how_something_is_done(prompt: str) -> None:
    assert is_how_to(prompt)


@pytest.mark.parametrize("prompt", ["How are you?", "However it goes", "Show the keys", "Do it"])
def test_not_asking_how_something_is_done(prompt: str) -> None:
    assert not is_how_to(prompt)


@pytest.mark.parametrize(
    "prompt",
    [
        "ValueError: invalid literal for int()",
        "error: linker `cc` not found",
        "The deploy fails with exit code 2",
        "Why is the cache empty?",
        "The app does not start on Windows",
        "debug the importer",
        "I get an error when saving",
        "ERR_CONNECTION_REFUSED on staging",
        "The request timed out",
        "Access denied for user root@localhost when I run mysql",
        "bash: jq: command not found",
        "no such table: orders",
    ],
)
def test_debugging(prompt: str) -> None:
    assert is_debugging(prompt)


@pytest.mark.parametrize("prompt", ["Rename the class", "Add an error page", "Explain exceptions", "Write the docs"])
def test_not_debugging(prompt: str) -> None:
    assert not is_debugging(prompt)


@pytest.mark.parametrize(
    "prompt",
    [
        "Add a CSV export to the page",
        "Please implement pagination for orders",
        "Can you build an importer",
        "We need a new endpoint for refunds",
        "Let's introduce rate limits now",
    ],
)
def test_wanting_a_new_feature(prompt: str) -> None:
    assert is_feature_request(prompt)


@pytest.mark.parametrize(
    "prompt", ["Fix the export", "Rename it", "make it blue", "Why add a flag?", "Explain the new flow"]
)
def test_not_wanting_a_new_feature(prompt: str) -> None:
    assert not is_feature_request(prompt)


def test_complexity_grows_with_length_names_files_and_clauses() -> None:
    plain = "How do I refresh the token"
    assert compute_complexity("") == 0
    assert compute_complexity(plain) < compute_complexity(f"{plain} that the other program has given me now")
    assert compute_complexity(plain) < compute_complexity(f"{plain} refresh_token")
    assert compute_complexity(f"{plain} refresh_token") < compute_complexity(f"{plain} auth/session.py")
    assert compute_complexity(plain) < compute_complexity(f"{plain} when it is old")
    assert compute_complexity("How do I limit logins?") < 0.5
    hard = (
        "How do I refresh the access token in auth/session.py without logging the user out, when "
        "two tabs ask for it at the same time?"
    )
    assert 0.5 < compute_complexity(hard) <= 1


@given(st.text(max_size=2_000))
def test_every_text_is_measured_within_bounds(text: str) -> None:
    assert 0 <= compute_complexity(text) <= 1
    is_how_to(text)
    is_feature_request(text)
    is_debugging(text)
    assert len(extract_error_words(text)) <= MAX_ERROR_WORDS


def test_the_words_of_an_error_leave_out_where_it_stands_and_what_is_around_it() -> None:
    prompt = (
        "Please have a look at the billing page\n"
        '  File "/srv/app/shop/billing.py", line 42, in charge\n'
        "stripe.CardDeclinedError: card 4242 was declined at 0x7f01\n"
        "I was in a train meanwhile"
    )
    words = [word.text for word in extract_error_words(prompt)]
    assert words == ["stripe", "carddeclinederror", "card", "declined"]


def test_a_line_of_an_error_is_known_again_whatever_stands_before_it() -> None:
    past = "E   AssertionError: assert  200 == 429\n at 0x7f01"
    (line,) = extract_error_lines("12:00:01 AssertionError: assert 200 == 429")
    assert line in normalize_error(past)
    assert line not in normalize_error("AssertionError: assert 200 == 404")
    (line,) = extract_error_lines("pg: ERROR: relation `orders` is missing at line 4")
    assert line in normalize_error("error: relation 'orders' is missing at line 17")


@pytest.mark.parametrize(
    "prompt",
    [
        "error: it failed",
        "Error: 1",
        "exit code 1",
        "Rename it",
        "    raise LedgerError('the shard is over its limit')",
        "} catch (LedgerError | ShardError broken) {",
        "except (LedgerError, ShardError):",
    ],
)
def test_what_any_failure_says_tells_no_error_from_others(prompt: str) -> None:
    assert extract_error_lines(prompt) == ()


def test_without_a_line_of_an_error_the_sentence_that_tells_of_it_counts() -> None:
    words = [word.text for word in extract_error_words("I like trains. The websocket handshake fails.")]
    assert words == ["websocket", "handshake"]
