"""Say which word comes next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from envs.errors import InputError
from envs.splits import IGNORE_INDEX, Split
from ram.baselines import Baseline
from ram.corpora import Corpus, Examples, Tokens
from ram.corpora.batches import pad
from ram.corpora.vocabulary import END, START
from ram.sequence.classifiers import LanguageModel
from ram.sequence.search import sample
from ram.tasks import Artifact
from ram.tasks.text import TextModel, TextTask

_SAMPLED, _ANSWERED = 12, 24
_LONGEST = 60


class TextGenerator(TextModel):
    """A trained :class:`ram.sequence.classifiers.LanguageModel`."""

    def sample(
        self,
        count: int = 1,
        prompt: str = "",
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        max_length: int = _LONGEST,
        seed: int = 0,
    ) -> list[str]:
        """Texts that begin with a prompt, each word after it sampled from those that are known.

        Args:
            count: how many.
            prompt: words to begin with; unknown ones are one word.
            temperature: below 1 the likely words come up more often, above 1 less; 0 always takes the likeliest.
            top_k: sample from so many of the likeliest words alone; None from all.
            top_p: and from the likeliest that have this share of the probability together.
            max_length: words after the prompt, at most.
            seed: of the samples.
        """
        if count < 1 or max_length < 1:
            raise InputError(f"sample needs a count and a max_length of at least 1, got {count} and {max_length}.")
        words = self.corpus.tokenize(prompt)
        prefix = torch.tensor([[START, *self.vocabulary.encode(words)]] * count, device=self.device)
        generator = torch.Generator(self.device).manual_seed(seed)
        assert isinstance(self.model, LanguageModel)
        followed = sample(self.model, prefix, max_length, None, temperature, top_k, top_p, generator)
        return [" ".join([*words, *self.vocabulary.decode(each)]) for each in followed]


class LanguageModelTask(TextTask):
    """Trains a :class:`ram.sequence.classifiers.LanguageModel`; see :class:`TextTask`.

    Args:
        corpus: where the texts come from; labels they may have are not used.
        model: builds the network; given ``vocabulary_size``.
        baseline: builds what the reward of hard choices is compared with.
        batch_size: texts a step.
        min_count: how often a word must come up in training to be known.
        policy_weight: of the hard choices' loss.
        answer_after: a word that ends a question: what follows it is the answer, and evaluation asks for it. None where
            texts are no questions.
        seed: of weights, batches and noise.
        device: where all is held.
    """

    trained = TextGenerator

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
        self.monitor = "perplexity"

    def name_classes(self, train: Examples) -> tuple[str, ...]:
        return self.vocabulary.words

    @staticmethod
    def asked_length(text: Tokens) -> int:
        return len(text) + 1  # with the start symbol

    @staticmethod
    def sizes(classes: Sequence[str]) -> dict[str, int]:
        return {}

    def ask(self, examples: Examples) -> tuple[Tensor, Tensor, Tensor]:
        encoded = [self.vocabulary.encode(text) for text in examples.texts]
        numbers, lengths = pad([[START, *text] for text in encoded], self.device)
        return numbers, lengths, pad([[*text, END] for text in encoded], self.device, IGNORE_INDEX)[0]

    def evaluate(self, split: Split) -> dict[str, float]:
        """Perplexity a word, the end of a text counted as one; and of questions, the wrong answers in percent."""
        losses = torch.cat([losses for _, _, losses in self.answers(split)])
        measured = {"perplexity": float(losses.double().mean().exp())}
        if self.answer_after is not None:
            replies = self._replies(self.split(split))
            measured["error"] = 100 * sum(given != right for _, right, given in replies) / len(replies)
        return measured

    def pictures(self, split: Split) -> dict[str, Artifact]:
        """Beside what is weighed: sampled texts, and some questions with the answers given."""
        assert isinstance(self.model, LanguageModel)
        prefix = torch.full((_SAMPLED, 1), START, device=self.device)
        generator = torch.Generator(self.device).manual_seed(0)
        sampled = sample(self.model, prefix, _LONGEST, generator=generator)
        told = super().pictures(split) | {
            "samples.txt": "\n".join(" ".join(self.vocabulary.decode(text)) for text in sampled) + "\n"
        }
        if self.answer_after is not None:
            asking = [n for n, text in enumerate(self.split(split).texts) if self.answer_after in text]
            some = self.split(split).choose(asking[:_ANSWERED])
            lines = [
                f"{' '.join(asked)} {' '.join(given)}" + ("" if given == right else f"   (wrong: {' '.join(right)})")
                for asked, right, given in self._replies(some)
            ]
            told["answers.txt"] = "\n".join(lines) + "\n"
        return told

    def _replies(self, examples: Examples) -> list[tuple[Tokens, Tokens, Tokens]]:
        """Question, right answer and likeliest answer of every text that asks something."""
        assert self.answer_after is not None
        assert isinstance(self.model, LanguageModel)
        by_length: dict[int, list[tuple[Tokens, Tokens]]] = defaultdict(list)
        for text in examples.texts:
            if self.answer_after in text:
                end = text.index(self.answer_after) + 1
                by_length[end].append((text[:end], text[end:]))
        if not by_length:
            raise InputError(f"No text of the corpus holds task.answer_after={self.answer_after!r}: set it to null.")
        replies = []
        for asked in by_length.values():
            answer_schedule = [[START, *self.vocabulary.encode(question)] for question, _ in asked]
            prefix = torch.tensor(answer_schedule, device=self.device)
            longest = max(len(answer) for _, answer in asked)
            given = sample(self.model, prefix, longest + 1, temperature=0)
            for (question, answer), reply in zip(asked, given, strict=True):
                replies.append((question, answer, tuple(self.vocabulary.decode(reply))))
        return replies
