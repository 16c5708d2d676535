"""Which prompts ask for the past by name, and about what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.language.past_forms import MAX_TOPIC_CHARACTERS, find_trigger, list_foreign_indicators, list_indicators

FORMS = {
    # What the forms promise: the topic that follows, with or without a question mark.
    "How did we limit logins before?": ("implementation", "limit logins"),
    "how did we limit logins before": ("implementation", "limit logins"),
    "How did we limit logins last time?": ("implementation", "limit logins"),
    "How'd we do the pagination back then?": ("implementation", "do the pagination"),
    "how have we solved the encoding of exports in the past": ("implementation", "solved the encoding of exports"),
    "How did I set up the proxy?": ("implementation", "set up the proxy"),
    "Do it the way we did the invoices page before": ("implementation", "the invoices page"),
    "use our previous implementation of the csv export": ("implementation", "the csv export"),
    "Remember when we fixed the reconnect?": ("memory", "fixed the reconnect"),
    "remember when we fixed the reconnect": ("memory", "fixed the reconnect"),
    "Remember how you mocked the clock?": ("memory", "mocked the clock"),
    "do you remember the deploy command for staging": ("memory", "the deploy command for staging"),
    "I don’t remember which port the worker uses.": ("memory", "which port the worker uses"),
    "Last time we worked on the billing export": ("last work", "the billing export"),
    "last time I touched the parser it broke": ("last work", "the parser it broke"),
    "When did we last change the schema?": ("last work", "the schema"),
    "Let's go on where we left off with the importer.": ("last work", "the importer"),
    "Where were we with the search index?": ("last work", "the search index"),
    "What was that caching library we discussed?": ("discussion", "caching library"),
    "what was the retry policy you mentioned": ("discussion", "retry policy"),
    "What did we decide about retries?": ("discussion", "retries"),
    "why did we choose postgres over mysql": ("discussion", "choose postgres over mysql"),
    "Have we ever tried sqlite here?": ("discussion", "tried sqlite here"),
    "The retry policy we agreed on should hold here": ("discussion", "retry policy"),
    "what was the limit we set for login attempts?": ("discussion", "limit"),
    "I told you before: the counters live in Redis": ("memory", "the counters live in Redis"),
    "What did we do yesterday about the importer?": ("last work", "the importer"),
    # All that was done of late.
    "what did we do yesterday?": ("overview", ""),
    "What did I work on last week, please?": ("overview", ""),
    "where did we leave off?": ("overview", ""),
    "where did we leave off last time": ("overview", ""),
    "Go on where we left off.": ("overview", ""),
    "Where were we?": ("overview", ""),
    "what were we working on": ("overview", ""),
}
FOREIGN_FORMS = {
    "Wie haben wir letztes Mal die Logins begrenzt?": ("implementation", "Logins begrenzt"),
    "was hatten wir zu den Login-Limits beschlossen": ("discussion", "Login-Limits"),
    "Warum haben wir Postgres genommen?": ("discussion", "Postgres genommen"),
    "Erinnerst du dich noch an den Webhook von Stripe?": ("memory", "Webhook von Stripe"),
    "Weißt du noch, welcher Port das war?": ("memory", "Port das war"),
    "Ich habe dir schon gesagt, die Zähler liegen in Redis": ("memory", "Zahler liegen in Redis"),
    "Beim letzten Mal haben wir am Importer gearbeitet": ("last work", "Importer gearbeitet"),
    "Was haben wir gestern gemacht?": ("overview", ""),
    "wo waren wir stehen geblieben?": ("overview", ""),
    "¿Cómo hicimos el export la última vez?": ("implementation", "export"),
    "como limitamos los logins la ultima vez": ("implementation", "limitamos los logins"),
    "¿Qué decidimos sobre los reintentos?": ("discussion", "reintentos"),
    "¿Recuerdas cuando arreglamos el webhook?": ("memory", "arreglamos el webhook"),
    "Ya te dije que los contadores están en Redis": ("memory", "contadores estan en Redis"),
    "La última vez que trabajamos en el importer": ("last work", "importer"),
    "¿Qué hicimos ayer?": ("overview", ""),
    "¿dónde nos quedamos?": ("overview", ""),
    "Comment avait-on limité les logins la dernière fois ?": ("implementation", "limite les logins"),
    "Qu’est-ce qu’on avait décidé pour les compteurs ?": ("discussion", "compteurs"),
    "Pourquoi avons-nous choisi Postgres ?": ("discussion", "choisi Postgres"),
    "Tu te souviens du webhook de Stripe ?": ("memory", "webhook de Stripe"),
    "La dernière fois qu'on a travaillé sur l'import": ("last work", "travaille sur l'import"),
    "Qu'avons-nous fait hier ?": ("overview", ""),
    "Où en étions-nous ?": ("overview", ""),
}
NO_FORMS = (
    "",
    "How do I limit logins?",
    "How did you know?",
    "how will we limit logins",
    "remember to run the tests",
    "Remember that we use tabs",
    "remember: no tabs",
    "Run it one last time",
    "The last time stamp is wrong",
    "What was that?",
    "what is the schema of the table",
    "We discussed nothing",
    "the user did weird things",
    "what did we do?",
    "Where did we stop the timer in the code?",
    "as I told you, keep it thin",
    "Wie funktioniert das?",
    "Was haben wir denn da für einen Fehler?",
    "¿Cómo funciona esto?",
    "Comment ça marche ?",
)


@pytest.mark.parametrize(("prompt", "expected"), FORMS.items(), ids=lambda each: str(each)[:40])
def test_a_prompt_that_asks_for_the_past_names_its_topic(prompt: str, expected: tuple[str, str]) -> None:
    assert find_trigger(prompt) == (*expected, False)


@pytest.mark.parametrize(("prompt", "expected"), FOREIGN_FORMS.items(), ids=lambda each: str(each)[:40])
def test_it_may_do_so_in_german_spanish_or_french(prompt: str, expected: tuple[str, str]) -> None:
    found = find_trigger(prompt)
    assert found is not None
    assert (found.wanted, found.is_foreign) == (expected[0], True)
    assert expected[1] in found.topic


@pytest.mark.parametrize("prompt", NO_FORMS, ids=lambda prompt: prompt[:40])
def test_a_prompt_about_now_asks_for_nothing_in_the_past(prompt: str) -> None:
    assert find_trigger(prompt) is None


def test_the_form_may_stand_in_any_sentence_and_its_topic_ends_there() -> None:
    prompt = "I am in a hurry. How did we limit logins last time? Then write the tests."
    assert find_trigger(prompt) == ("implementation", "limit logins", False)
    said = find_trigger("Where were we with the search index? Also, the build is red.")
    assert said == ("last work", "the search index", False)


@given(st.text(max_size=400))
def test_any_text_is_read_and_no_topic_is_long(text: str) -> None:
    for prompt in (text, f"How did we {text}", f"last time we worked on {text}"):
        found = find_trigger(prompt)
        assert found is None or len(found.topic) <= MAX_TOPIC_CHARACTERS


HINTS = {
    "The webhook arrives twice again": "again",
    "Make it similar to the invoices page": "similar",
    "do it like before": "before",
    "Do it as we did last time, please": "last time",
    "solve it the same way": "same way",
    "Do you remember the port?": "remember",
    "I don't remember the name of the index": "remember",
    "Remember the retry bug we had?": "remember",
    "can you recall the flag": "recall",
    "Previously this was done in a worker": "previously",
    "we talked about shards earlier": "earlier",
    "our earlier attempt was slow": "earlier",
}
NO_HINTS = (
    "This goes against the rules",
    "He is totally right, regain the lock",
    "again and again the same song",
    "remember to run the tests",
    "Remember that we use tabs",
    "remember: use tabs",
    "Remember, never push to main",
    "please remember the deploy key is in the vault",
    "Add a remember me checkbox",
    "Precision and recall are low",
    "recall@10 went down",
    "recall_memories is slow",
    "unrecalled remembering earliest similarly",
    "the previously selected row",
    "as I mentioned earlier, keep it thin",
    "as I said before, keep it thin",
    "start earlier than noon",
    "The summary should stand earlier",
)


FOREIGN_HINTS = (
    "Die Webhooks kommen wieder doppelt an",
    "Mach es ähnlich wie bei den Rechnungen",
    "aehnlich wie beim Export",
    "Bau es genauso wie die Suche",
    "so wie beim letzten Mal",
    "Los webhooks llegan de nuevo dos veces",
    "hazlo como la última vez",
    "Le webhook arrive à nouveau deux fois",
    "Fais-le comme avant",
    "de la même manière",
)
NO_FOREIGN_HINTS = (
    "Das kommt immer wieder vor",
    "Wiederhole den Test",
    "como siempre",
    "un nouvel export",
    "The webhook arrives twice again",
)


@pytest.mark.parametrize("prompt", FOREIGN_HINTS)
def test_a_hint_may_be_german_spanish_or_french(prompt: str) -> None:
    assert list_foreign_indicators(prompt)


@pytest.mark.parametrize("prompt", NO_FOREIGN_HINTS)
def test_what_only_looks_like_a_foreign_hint_is_none(prompt: str) -> None:
    assert list_foreign_indicators(prompt) == []


@pytest.mark.parametrize(("prompt", "name"), HINTS.items())
def test_a_hint_at_the_past_is_seen(prompt: str, name: str) -> None:
    assert name in list_indicators(prompt)


@pytest.mark.parametrize("prompt", NO_HINTS)
def test_what_only_looks_like_a_hint_is_none(prompt: str) -> None:
    assert list_indicators(prompt) == []
