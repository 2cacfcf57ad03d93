"""BLEU and chrF against manual values."""

import math

import pytest

from ram.metrics.translation import bleu_and_chrf, signatures


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
