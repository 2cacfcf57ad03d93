"""Translation tasks: what small models learn."""

import random
from functools import partial
from typing import Any

import pytest
import torch

from ram.attention.selection import Hard
from ram.baselines import MovingAverageBaseline, NoBaseline
from ram.corpora import Examples
from ram.sequence import interfaces
from ram.sequence.context import CrossAttention
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.recurrent import RecurrentDecoder, RecurrentEncoder
from ram.sequence.seq2seq import DecoderOnly
from tests.ram.tasks.text_corpora import InMemoryCorpus, train
from tests.ram.tasks.translation_models import build_task


def reversals(count: int, seed: int) -> Examples:
    """Builds texts of one to four letters with their reversals."""
    generator = random.Random(seed)
    texts = tuple(tuple(generator.choice("abcd") for _ in range(generator.randint(1, 4))) for _ in range(count))
    return Examples(texts, tuple(text[::-1] for text in texts))


def exact_after_training(
    corpus: InMemoryCorpus, steps: int, rate: float, baseline: Any = NoBaseline, fixed: str = "none", **options: Any
) -> float:
    """Trains all parameters but those named ``fixed``, and returns the exact matches in percent."""
    task = build_task(corpus, baseline, batch_size=32, seed=1, bleu=False, **options)
    for name, value in task.named_parameters():
        value.requires_grad_(fixed not in name)
    optimizer = torch.optim.Adam(task.parameter_groups()[0]["params"], rate)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
        train(task, range(step, step + 1), optimizer)
    return task.eval().evaluate("test")["exact"]


REVERSALS = InMemoryCorpus(reversals(640, 0), test=reversals(100, 1))
LEARNERS: dict[str, dict[str, Any]] = {
    "luong": {
        "encoder": partial(RecurrentEncoder, cell="gru", size=16, bidirectional=True),
        "decoder": partial(RecurrentDecoder, cell="gru", size=32, bridge="state", context=CrossAttention),
    },
    "decoder_only": {
        "kind": DecoderOnly,
        "encoder": partial(RecurrentEncoder, cell="gru", size=48),
        "shared_vocabulary": True,
    },
}


@pytest.mark.parametrize("name", LEARNERS)
def test_reversal_is_learned(name: str) -> None:
    parts = {"embedding": partial(TokenEmbedding, size=16)} | LEARNERS[name]
    assert exact_after_training(REVERSALS, 150, 0.02, **parts) > 75
    assert exact_after_training(REVERSALS, 0, 0.02, **parts) < 10


def greetings(count: int, seed: int) -> Examples:
    """Builds greetings with names; those of even and odd seeds have different consonants."""
    generator, letters = random.Random(seed), "bdfgklmnprst"[seed % 2 :: 2]
    texts, targets = [], []
    for _ in range(count):
        name = "".join(generator.choice(letters) + generator.choice("aeiou") for _ in range(3))
        text, answer = generator.choice(
            [("i am {}", "hello {}"), ("{} is here", "{} , welcome"), ("this is {}", "oh {}")]
        )
        texts.append(tuple(text.format(name).split()))
        targets.append(tuple(answer.format(name).split()))
    return Examples(tuple(texts), tuple(targets))


def test_unknown_names_are_learned_by_copying_only() -> None:
    corpus = InMemoryCorpus(greetings(320, 0), test=greetings(100, 1))
    parts = {"embedding": partial(TokenEmbedding, size=16), "min_count": 20} | LEARNERS["luong"]
    assert exact_after_training(corpus, 80, 0.02, **parts, copy=True) > 80
    assert exact_after_training(corpus, 80, 0.02, **parts) == 0


def capitals(count: int) -> Examples:
    """Builds texts of three lowercase letters and one capital, which is the target."""
    generator, texts, targets = random.Random(0), [], []
    for _ in range(count):
        words = [generator.choice("abcdef") for _ in range(3)]
        answer = generator.choice("ABCDEF")
        words.insert(generator.randrange(4), answer)
        texts.append(tuple(words))
        targets.append((answer,))
    return Examples(tuple(texts), tuple(targets))


def test_hard_attention_learns_the_position_of_the_target() -> None:
    """The embeddings are not trained, so that the accuracy depends on the trained choice only."""
    decoder = partial(
        RecurrentDecoder, cell="gru", size=16, bridge="none", context=partial(CrossAttention, select=Hard)
    )
    parts = {
        "embedding": partial(TokenEmbedding, size=16),
        "encoder": interfaces.IdentityEncoder,
        "decoder": decoder,
        "fixed": "embedding",
    }
    corpus = InMemoryCorpus(capitals(320))
    assert exact_after_training(corpus, 120, 0.03, MovingAverageBaseline, **parts, gamma=1.0) > 90
    assert exact_after_training(corpus, 120, 0.03, MovingAverageBaseline, **parts, gamma=1.0, policy_weight=0.0) < 75
