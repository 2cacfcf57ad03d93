"""Language modelling: the next word, and the answers to questions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from envs.errors import InputError
from envs.splits import IGNORE_INDEX, Split
from ram.baselines import Baseline
from ram.corpora import Corpus, Examples, Tokens
from ram.corpora.vocabulary import START, teacher_forcing_batch
from ram.inference.text import MAX_SAMPLE_LENGTH, TextGenerator
from ram.sequence.autoregressive import LanguageModel
from ram.sequence.search import sample
from ram.tasks import Artifact
from ram.tasks.text import TextTask

_NUM_SAMPLES, _NUM_ANSWERS = 12, 24


class LanguageModelTask(TextTask):
    """Trains a :class:`ram.sequence.autoregressive.LanguageModel`; see :class:`TextTask`.

    Args:
        corpus: the data set; its targets are not used.
        model: builds the model; called with ``vocabulary_size``.
        baseline: builds the baseline of hard attention.
        batch_size: texts per step.
        min_count: minimum number of occurrences of a word in training; other words are unknown.
        policy_weight: weight of the loss of hard attention.
        answer_after: the word that ends a question. The words after it are the answer, which evaluation compares with
            greedy decoding. None for texts without questions.
        seed: of weights, batches and noise.
        device: of the model and the batches.
    """

    monitor = "perplexity"
    trained_model = TextGenerator

    def __init__(
        self,
        corpus: Corpus,
        model: Callable[..., LanguageModel],
        baseline: Callable[..., Baseline],
        batch_size: int = 32,
        min_count: int = 1,
        policy_weight: float = 1.0,
        answer_after: str | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        super().__init__(corpus, model, baseline, batch_size, min_count, policy_weight, seed, device)
        self.answer_after = answer_after

    def find_classes(self, train: Examples) -> tuple[str, ...]:
        return self.vocabulary.all_tokens

    @staticmethod
    def input_length(text: Tokens) -> int:
        return len(text) + 1  # with the start symbol

    @staticmethod
    def sizes(classes: Sequence[str]) -> dict[str, int]:
        return {}

    def make_batch(self, examples: Examples) -> tuple[Tensor, Tensor, Tensor]:
        encoded = [self.vocabulary.encode(text) for text in examples.texts]
        token_ids, targets = teacher_forcing_batch(encoded, self.device)
        return token_ids, (targets != IGNORE_INDEX).sum(1), targets

    def evaluate(self, split: Split) -> dict[str, float]:
        """Returns the perplexity per word and end symbol, and the wrong answers in percent of the questions."""
        losses = torch.cat([losses for _, _, losses in self.predictions(split)])
        metrics = {"perplexity": float(losses.double().mean().exp())}
        if self.answer_after is not None:
            answers = self.map_parts(self._answers, self._questions(split))
            wrong = sum(prediction != reference for _, reference, prediction in answers)
            metrics["error"] = 100 * wrong / len(answers)
        return metrics

    def pictures(self, split: Split) -> dict[str, Artifact]:
        """Adds samples, and the predicted answers to some questions."""
        prefix = torch.full((_NUM_SAMPLES, 1), START, device=self.device)
        generator = torch.Generator(self.device).manual_seed(0)
        sampled = sample(self.model, prefix, MAX_SAMPLE_LENGTH, generator=generator)
        lines = [" ".join(self.vocabulary.decode(token_ids)) for token_ids in sampled]
        artifacts = super().pictures(split) | {"samples.txt": "\n".join(lines) + "\n"}
        if self.answer_after is not None:
            questions, lines = self._questions(split), list[str]()
            questions = questions.select(range(min(_NUM_ANSWERS, len(questions))))
            for question, reference, prediction in self._answers(questions):
                correction = "" if prediction == reference else f"   (reference: {' '.join(reference)})"
                lines.append(f"{' '.join(question)} {' '.join(prediction)}{correction}")
            artifacts["answers.txt"] = "\n".join(lines) + "\n"
        return artifacts

    def _questions(self, split: Split) -> Examples:
        """Returns the texts of a split that have a question."""
        examples = self.split(split)
        indices = [index for index, text in enumerate(examples.texts) if self.answer_after in text]
        if not indices:
            raise InputError(f"No text of the corpus contains task.answer_after={self.answer_after!r}: set it to null.")
        return examples.select(indices)

    def _answers(self, examples: Examples) -> list[tuple[Tokens, Tokens, Tokens]]:
        """Returns question, reference and greedily decoded answer of texts with a question."""
        assert self.answer_after is not None
        by_length: dict[int, list[tuple[Tokens, Tokens]]] = defaultdict(list)
        for text in examples.texts:
            end = text.index(self.answer_after) + 1
            by_length[end].append((text[:end], text[end:]))
        answers = []
        for pairs in by_length.values():
            prompts = [[START, *self.vocabulary.encode(question)] for question, _ in pairs]
            max_length = max(len(reference) for _, reference in pairs) + 1
            decoded = sample(self.model, torch.tensor(prompts, device=self.device), max_length, temperature=0)
            for (question, reference), token_ids in zip(pairs, decoded, strict=True):
                answers.append((question, reference, tuple(self.vocabulary.decode(token_ids))))
        return answers
