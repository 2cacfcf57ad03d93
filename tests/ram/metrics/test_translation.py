"""BLEU and chrF against manual values."""

import math

import pytest

from envs.errors import InputError
from ram.metrics.translation import bleu_and_chrf, bleu_tokenizer, check_tokenizer, signatures


def test_bleu_has_a_brevity_penalty() -> None:
    assert bleu_and_chrf(["a b c d"], [["a b c d e"]])["bleu"] == pytest.approx(100 * math.exp(1 - 5 / 4))


def test_bleu_and_chrf_ignore_case() -> None:
    assert bleu_and_chrf(["A b C d"], [["a B c D"]]) == pytest.approx({"bleu": 100, "chrf": 100})


def test_every_prediction_may_have_its_own_number_of_references() -> None:
    metrics = bleu_and_chrf(["a b c d", "e f g h"], [["x", "a b c d"], ["e f g h"]])
    assert metrics == pytest.approx({"bleu": 100, "chrf": 100})


def test_signatures_name_the_options_of_both_metrics() -> None:
    bleu, chrf = signatures(["a b c d"], [["a b c d", "a b"]]).splitlines()
    assert bleu.startswith("BLEU  nrefs:2|case:lc|eff:no|tok:13a|smooth:exp|version:")
    assert chrf.startswith("chrF  nrefs:2|case:lc|")


@pytest.mark.parametrize(
    ("reference", "tokenizer"),
    [
        ("A dog, 50 €.", "13a"),
        ("123", "13a"),
        ("彼は犬 (dog) だ。", "char"),
        ("นี่คืออะไร", "char"),
        ("यह किताब है।", "intl"),
        ("это книга", "intl"),
    ],
)
def test_the_tokenizer_of_bleu_suits_the_script(reference: str, tokenizer: str) -> None:
    assert bleu_tokenizer([(reference,)]) == tokenizer
    signature = signatures([reference], [[reference]])
    assert f"|tok:{tokenizer}|" in signature


def test_a_sentence_without_spaces_is_scored_by_its_letters() -> None:
    # Of 5 letters, 4 pairs, 3 triples and 2 quadruples, one letter differs: 4, 2, 1 and 0 are equal, 0 counts as 1/2.
    score = bleu_and_chrf(["彼は猫だ。"], [["彼は犬だ。"]])["bleu"]
    assert score == pytest.approx(100 * (4 / 5 * 2 / 4 * 0.5 / 3 * 0.25 / 2) ** 0.25)
    assert bleu_and_chrf(["彼は犬だ。"], [["彼は犬だ。"]])["bleu"] == pytest.approx(100)


def test_unknown_tokenizers_are_refused() -> None:
    check_tokenizer("char")
    with pytest.raises(InputError, match=r"^task\.bleu_tokenizer must be one of 13a, char, .*got 'mecab'"):
        check_tokenizer("mecab")
