"""Masking against realistic texts, which were written before the rules."""

from everkept.core.secrets import mask_text
from secret_samples import read_harmless, read_secrets

MASKED_SHARE = 0.95
WRONG_OF_500 = 2


def test_nearly_all_realistic_secrets_are_masked() -> None:
    samples = read_secrets()
    shown = [sample.shape for sample in samples if sample.shows_secret(mask_text(sample.text)[0])]
    assert len(samples) >= 300
    assert len(shown) <= (1 - MASKED_SHARE) * len(samples), shown


def test_harmless_texts_stay_as_they_are() -> None:
    samples = read_harmless()
    changed = [sample.shape for sample in samples if mask_text(sample.text)[1]]
    assert len(samples) >= 500
    assert len(changed) * 500 <= WRONG_OF_500 * len(samples), changed


def test_masking_a_masked_sample_changes_nothing() -> None:
    for sample in [*read_secrets(), *read_harmless()]:
        once, _ = mask_text(sample.text)
        assert mask_text(once) == (once, []), sample.shape


def test_samples_are_masked_in_the_middle_of_a_long_text() -> None:
    samples = read_secrets()[::7]
    text = "\n\n".join(f"We talked about this on Monday.\n{sample.text}\nNothing more." for sample in samples)
    masked, _ = mask_text(text)
    shown = [sample.shape for sample in samples if sample.shows_secret(masked)]
    assert len(shown) <= 0.1 * len(samples), shown
