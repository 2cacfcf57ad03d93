"""Turn one sequence into another: translate, reverse, copy, calculate, spell, inflect."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor

from envs.errors import InputError
from envs.splits import IGNORE_INDEX, Split
from envs.validation import check_probability
from ram.baselines import Baseline
from ram.corpora import Examples, PairCorpus, Tokens
from ram.corpora.batches import pad
from ram.corpora.subwords import Subwords
from ram.corpora.vocabulary import PADDING, UNKNOWN
from ram.corpora.vocabulary_pair import SourceBatch, VocabularyPair, targets_of
from ram.plots.text import accuracy_by_length, alignment
from ram.sequence.classifiers import ModelOutput
from ram.sequence.decoders import Memory
from ram.sequence.search import SPECIAL_TOKENS, Hypothesis, Search, beam_search, sample
from ram.sequence.seq2seq import Seq2SeqModel
from ram.tasks import Artifact, StepResult, part
from ram.tasks.corpus import (
    EVALUATION_BATCH,
    CorpusTask,
    answer_loss,
    check_length,
    check_same,
    cross_entropy,
    teacher_forcing_batch,
    tokenized,
)

Monitor = Literal["bleu", "exact", "perplexity"]

_WRITTEN, _DRAWN, _COUNTED = 24, 3, 2000


@dataclass(frozen=True)
class Batch:
    """B sources, and what is to be said.

    Attributes:
        sources: as numbers.
        inputs: (B, T) int64, the start symbol and the target.
        right: (B, T) int64, the target and the end symbol; -100 after it.
    """

    sources: SourceBatch
    inputs: Tensor
    right: Tensor


class TextTranslator:
    """A trained network with its words; what :func:`ram.load` returns.

    Args:
        model: the network.
        languages: the words it knows.
        corpus: of the kind it was trained on, for its way to tell words and to write them.
        search: how it goes on unless told otherwise.
        device: where it computes.
    """

    def __init__(
        self, model: Seq2SeqModel, languages: VocabularyPair, corpus: PairCorpus, search: Search, device: str
    ) -> None:
        self.model, self.languages, self.corpus, self.search = model.to(device).eval(), languages, corpus, search
        self.device = torch.device(device)

    def check(self, where: str, words: Tokens) -> None:
        """Refuses a text that is longer than the model has positions for; ``where`` tells which it is."""
        check_length(where, words, len(self.languages.source.encode(words)), self.model.max_source_length)

    def translate(self, texts: Sequence[str], beam_size: int | None = None) -> list[str]:
        """The best that is found for each text.

        Args:
            texts: N of them; unknown words are one word, or are copied where the model can.
            beam_size: hypotheses followed at once; None as in training.

        Raises:
            InputError: there are no texts, one has no words, or is longer than the model's positions.
        """
        return [best[0] for best in self.n_best(texts, 1, beam_size)]

    def n_best(self, texts: Sequence[str], number: int, beam_size: int | None = None) -> list[list[str]]:
        """The best ``number`` that are found for each text, the best first; as :meth:`translate`.

        Where pieces make the same text in several ways, or no more is found, there are fewer.
        """
        words = tokenized(self.corpus, texts, "translates")
        size = max(number, self.search.beam_size) if beam_size is None else beam_size
        found = speak(self.model, self.languages, words, self.search, self.device, size, number)
        return [list(dict.fromkeys(self.corpus.detokenize(said) for said, _ in each)) for each in found]

    def sample(
        self,
        texts: Sequence[str],
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> list[str]:
        """One translation of each text, every word of it sampled from those that are likely.

        Args:
            texts: as for :meth:`translate`.
            temperature: see :func:`ram.sequence.search.truncated_probabilities`, like the next two.
            top_k: see there.
            top_p: see there.
            seed: of the samples.
        """
        words, generator = tokenized(self.corpus, texts, "translates"), torch.Generator(self.device).manual_seed(seed)

        def find(prefix: Tensor, longest: int, memory: Memory | None) -> list[list[int]]:
            return sample(self.model, prefix, longest, memory, temperature, top_k, top_p, generator)

        found = go_on(self.model, self.languages, words, self.search.max_length, self.device, find)
        decode = self.languages.target.decode
        return [self.corpus.detokenize(decode(said, unknown)) for said, unknown in zip(*found, strict=True)]


class TranslateTask(CorpusTask[Examples]):
    """Trains a :class:`ram.sequence.seq2seq.Seq2SeqModel` by cross-entropy, and its hard choices by REINFORCE.

    Args:
        corpus: where pairs come from.
        model: builds the network; given ``source_size``, ``target_size`` and ``shared``.
        baseline: builds what the reward of hard choices is compared with; the reward of a step is the log-probability
            of its right word.
        batch_size: pairs a step.
        min_count: how often a word must come up in training to be known, where words are not made of pieces.
        pieces: learn so many pieces of words by byte-pair encoding, in place of words; None for words.
        shared_vocabulary: sources and targets are made of the same words or pieces.
        label_smoothing: share of the answer that is spread over all words, in [0, 1) (Szegedy et al. 2016, section 7).
        source_weight: of the loss of the source's words, where the model says them too.
        scheduled_sampling: share of the words a target goes on from that are what the model would say itself, at the end of
            training, to which it rises evenly (Bengio et al. 2015; what it says is told from the right words, as in
            Mihaylova and Martins 2019); in [0, 1].
        policy_weight: of the hard choices' loss.
        gamma: discount of the rewards of later steps, in [0, 1].
        search: how the model goes on by itself where it is measured.
        monitor: what chooses the best checkpoint: "bleu", "exact" or "perplexity".
        bleu: measure BLEU and chrF, which need targets of several words.
        seed: of weights, batches and noise.
        device: where all is held.
    """

    corpus: PairCorpus

    def __init__(
        self,
        corpus: PairCorpus,
        model: Callable[..., Seq2SeqModel],
        baseline: Callable[..., Baseline],
        batch_size: int = 64,
        min_count: int = 1,
        subwords: int | None = None,
        shared_vocabulary: bool = False,
        label_smoothing: float = 0.0,
        source_weight: float = 0.0,
        scheduled_sampling: float = 0.0,
        policy_weight: float = 1.0,
        gamma: float = 1.0,
        search: Search | None = None,
        monitor: Monitor = "exact",
        bleu: bool = True,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        check_probability("task.label_smoothing", label_smoothing)
        for name, share in [("scheduled_sampling", scheduled_sampling), ("gamma", gamma)]:
            if not 0 <= share <= 1:
                raise InputError(f"task.{name} must be in [0, 1], got {share}.")
        if monitor not in get_args(Monitor) or (monitor == "bleu" and not bleu):
            raise InputError(f"task.monitor must be exact, perplexity, or bleu with task.bleu=true; got {monitor!r}.")
        super().__init__(corpus, batch_size, min_count, policy_weight, seed, device)
        self.label_smoothing, self.source_weight = label_smoothing, source_weight
        self.scheduled_sampling, self.gamma = scheduled_sampling, gamma
        self.search, self.bleu = search or Search(), bleu
        self.monitor, self.maximize = monitor, monitor != "perplexity"
        train = self._splits["train"]
        self.languages = VocabularyPair.of(train, min_count, subwords, shared_vocabulary)
        if not hasattr(corpus, "detokenize"):
            raise InputError("task=translate needs a corpus that can write what is said, such as corpus=reversal.")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = model(**self.languages.sizes())
            self.baseline = baseline(feature_size=self.model.feature_size, rollouts_per_image=1)
        if self.model.copies and not self.languages.shared and isinstance(self.languages.target, Subwords):
            raise InputError(
                "task.model.copy=true of task.subwords needs both to be the same: set shared_vocabulary=true."
            )
        if source_weight and not self.model.says_source:
            raise InputError(
                f"task.source_weight={source_weight} needs a model that says the source: task=decoder_only."
            )
        self.to(self.device)
        for split, examples in self._splits.items():
            if (self.model.max_source_length, self.model.max_length) != (None, None):
                self._check_lengths(split, examples)

    def _check_lengths(self, split: Split, examples: Examples) -> None:
        """Refuses a text or a target that is longer than the positions the model has for it."""
        for number, (text, target) in enumerate(zip(examples.texts, targets_of(examples), strict=True)):
            source, where = len(self.languages.source.encode(text)), examples.where(number, split)
            check_length(where, text, source, self.model.max_source_length)
            length = self.model.ahead(source) + len(self.languages.target.encode(target))
            check_length(f"to be said {where}", target, length, self.model.max_length)

    @staticmethod
    def lengths(examples: Examples) -> list[int]:
        return [len(text) + len(target) for text, target in zip(examples.texts, targets_of(examples), strict=True)]

    def ask(self, examples: Examples) -> Batch:
        """The numbers of some examples."""
        sources = self.languages.read(examples.texts, self.device, self.model.copies)
        said = [
            self.languages.target.encode(target, more)
            for target, more in zip(targets_of(examples), sources.unknown, strict=True)
        ]
        return Batch(sources, *teacher_forcing_batch(said, self.device))

    def forward(self, step: int) -> StepResult:
        asked = self.ask(self.begin(step))
        said = self._say(asked, self._inputs(asked))
        known = len(self.languages.target)
        losses, mean = answer_loss(said.logits, asked.right, self.label_smoothing, known)
        terms = {"loss/answer": mean}
        if self.source_weight:
            assert said.source_logits is not None
            numbers = asked.sources.numbers
            numbers = numbers.masked_fill(numbers == PADDING, IGNORE_INDEX)
            source = cross_entropy(said.source_logits, numbers).sum() / (numbers != IGNORE_INDEX).sum()
            terms["loss/source"] = self.source_weight * source
        return self.end(said, asked.right, losses, terms, self.gamma)

    def correct(self, said: ModelOutput, right: Tensor) -> Tensor:
        """No word is told by saying that it is unknown."""
        return super().correct(said, right) & (right != UNKNOWN)

    def _say(self, asked: Batch, inputs: Tensor, need_weights: bool = False) -> ModelOutput:
        sources = asked.sources
        return self.model(sources.numbers, sources.lengths, inputs, sources.copies, need_weights)

    def _inputs(self, asked: Batch) -> Tensor:
        """The right words, some of them replaced by what the model would say in their place."""
        share = self.scheduled_sampling * self.progress
        if not share:
            return asked.inputs
        with torch.no_grad():
            logits = self._say(asked, asked.inputs).logits[:, :-1].clone()
            logits[..., SPECIAL_TOKENS] = -math.inf
            own = torch.multinomial(logits.flatten(0, 1).softmax(-1), 1).view_as(asked.inputs[:, 1:])
        drawn = torch.rand(own.shape, device=own.device) < share
        drawn &= asked.right[:, 1:] != IGNORE_INDEX  # whose place another word follows, or the end
        return torch.cat([asked.inputs[:, :1], torch.where(drawn, own, asked.inputs[:, 1:])], dim=1)

    @torch.no_grad()
    def evaluate(self, split: Split) -> dict[str, float]:
        """Measures what the model says of the right words one by one, and what it says by itself.

        Of the former perplexity, accuracy in percent and, where the corpus knows which words go together, the share of
        words in percent whose largest weight lies elsewhere; of the latter exact matches in percent, BLEU and chrF.
        """
        losses, correct, misaligned = [], [], []
        for some in self.by_length(split):
            asked = self.ask(some)
            aligned = some.alignments is not None and self.languages.of_words
            said = self._say(asked, asked.inputs, need_weights=aligned)
            scored = asked.right != IGNORE_INDEX
            losses.append(cross_entropy(said.logits, asked.right)[scored])
            correct.append(self.correct(said, asked.right)[scored])
            if aligned and said.weights is not None:
                true = pad([[*places, IGNORE_INDEX] for places in some.alignments or ()], self.device, IGNORE_INDEX)[0]
                misaligned.append((said.weights.argmax(-1) != true)[true >= 0])
        measured = {
            "perplexity": float(torch.cat(losses).double().mean().exp()),
            "accuracy": 100 * float(torch.cat(correct).float().mean()),
        }
        if misaligned:
            measured["alignment_error"] = 100 * float(torch.cat(misaligned).float().mean())
        return measured | self.evaluate_generation(split)

    def evaluate_generation(self, split: Split, beam_size: int | None = None) -> dict[str, float]:
        """Exact matches in percent, BLEU and chrF of what the model says by itself."""
        examples = self.split(split)
        said = [self.corpus.detokenize(best[0][0]) for best in self.speak(examples, beam_size)]
        references = self._references(examples)
        measured = {"exact": 100 * sum(self._exact(said, examples)) / len(said)}
        return measured | (bleu_and_chrf(said, references) if self.bleu else {})

    def speak(self, examples: Examples, beam_size: int | None = None, n_best: int = 1) -> list[Spoken]:
        """What the model says by itself of every example; see :func:`speak`."""
        size = self.search.beam_size if beam_size is None else beam_size
        return speak(self.model, self.languages, examples.texts, self.search, self.device, size, n_best)

    def _references(self, examples: Examples) -> tuple[tuple[str, ...], ...]:
        if examples.references is None:
            return tuple((self.corpus.detokenize(target),) for target in targets_of(examples))
        return examples.references

    def _exact(self, said: Sequence[str], examples: Examples) -> list[bool]:
        """Whether each is a reference, or the target as the corpus writes it."""
        known = zip(said, self._references(examples), targets_of(examples), strict=True)
        return [text in references or text == self.corpus.detokenize(target) for text, references, target in known]

    @torch.no_grad()
    def pictures(self, split: Split) -> dict[str, Artifact]:
        """Some texts with what the model makes of them, what it weighs then, and how many are right by length."""
        examples = self.split(split)
        some = examples.choose(range(min(_WRITTEN, len(examples))))
        spoken = [best[0] for best in self.speak(some)]
        asked = self.ask(Examples(some.texts, tuple(said for said, _ in spoken)))
        said = self._say(asked, asked.inputs, need_weights=True)
        lines, references = [], self._references(some)
        copied = copied_share(said, asked.right, asked.sources.copies)
        for row, (text, (words, _)) in enumerate(zip(some.texts, spoken, strict=True)):
            told = list(words)
            if copied is not None:
                numbers = asked.right[row][asked.right[row] != IGNORE_INDEX].tolist()[:-1]  # without the end
                for place, share in zip(self.languages.target.places(numbers), copied[row].tolist(), strict=False):
                    told[place] = f"[{words[place]}]" if share > 0.5 else told[place]
            lines += [f"source  {' '.join(text)}", f"right   {references[row][0]}", f"said    {' '.join(told)}", ""]
        drawn: dict[str, Artifact] = {"translations.txt": "\n".join(lines)}
        if self.bleu:
            drawn["bleu.txt"] = signatures([self.corpus.detokenize(words) for words, _ in spoken], references)
        if said.weights is not None:
            by_length = sorted(range(len(some)), key=lambda row: len(some.texts[row]))
            for number in range(_DRAWN):
                row = by_length[(2 * number + 1) * len(by_length) // (2 * _DRAWN)]
                sources, length = asked.sources, int((asked.right[row] != IGNORE_INDEX).sum())
                keys: Sequence[str] = some.texts[row]
                if not self.languages.of_words:
                    keys = self.languages.source.names(sources.numbers[row, : sources.lengths[row]].tolist())
                queries = self.languages.target.names(asked.right[row, :length].tolist(), sources.unknown[row])
                if copied is not None:
                    shares = copied[row].tolist()
                    queries = [f"[{name}]" if shares[place] > 0.5 else name for place, name in enumerate(queries)]
                drawn[f"alignment_{number + 1}.png"] = alignment(said.weights[row, :length, : len(keys)], queries, keys)
        step = -(-len(examples) // _COUNTED)
        some = examples.choose(range(0, len(examples), step))
        counts: dict[int, tuple[int, int]] = dict.fromkeys(sorted(map(len, some.texts)), (0, 0))
        exact = self._exact([self.corpus.detokenize(best[0][0]) for best in self.speak(some)], some)
        for text, right in zip(some.texts, exact, strict=True):
            correct, total = counts[len(text)]
            counts[len(text)] = correct + right, total + 1
        drawn["lengths.png"] = accuracy_by_length({"": counts})
        rows = [f"{length},{correct},{total}" for length, (correct, total) in counts.items()]
        drawn["lengths.csv"] = "\n".join(["length,right,texts", *rows]) + "\n"
        return drawn

    def get_extra_state(self) -> dict[str, Any]:
        """What a trained model must know that no tensor holds."""
        return self.languages.state()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Refuses the state of other words."""
        saved, present = (
            {f"{side} words": known for side, known in each.items()} for each in (state, self.languages.state())
        )
        check_same(saved, present)

    @classmethod
    def restore(cls, state: Mapping[str, Any], arguments: Mapping[str, Any]) -> TextTranslator:
        languages = VocabularyPair.restore(state["_extra_state"])
        model = arguments["model"](**languages.sizes())
        model.load_state_dict(part(state, "model."))
        return TextTranslator(
            model, languages, arguments["corpus"], arguments["search"] or Search(), arguments["device"]
        )


Spoken = list[tuple[Tokens, Hypothesis]]
"""What a model says of one text, the best first: words, and how they were found."""

_Found = TypeVar("_Found")


def speak(
    model: Seq2SeqModel,
    languages: VocabularyPair,
    texts: Sequence[Tokens],
    search: Search,
    device: torch.device,
    beam_size: int,
    n_best: int = 1,
) -> list[Spoken]:
    """Goes on from every text by beam search; see :func:`go_on`."""

    def find(prefix: Tensor, longest: int, memory: Memory | None) -> list[list[Hypothesis]]:
        return beam_search(model, prefix, longest, memory, beam_size, search.length_penalty, n_best)

    found = go_on(model, languages, texts, search.max_length, device, find)
    return [
        [(tuple(languages.target.decode(each.words, unknown)), each) for each in best]
        for best, unknown in zip(*found, strict=True)
    ]


@torch.no_grad()
def go_on(
    model: Seq2SeqModel,
    languages: VocabularyPair,
    texts: Sequence[Tokens],
    max_length: int | None,
    device: torch.device,
    find: Callable[[Tensor, int, Memory | None], Sequence[_Found]],
) -> tuple[list[_Found], list[Tokens]]:
    """Goes on from every text, from those of one length together, so that none is filled up.

    Args:
        model: in evaluation mode.
        languages: its words.
        texts: N of them.
        max_length: words said, at most; None for twice the source's and ten.
        device: where the model is.
        find: what is found from some beginnings, (B, n), with at most so many words after them, reading in a memory.

    Returns:
        What is found for every text, and the words of it that the model does not know.

    Raises:
        InputError: naming a text that is longer than the model's positions.
    """
    encoded = [languages.source.encode(text) for text in texts]
    order = sorted(range(len(texts)), key=lambda number: len(encoded[number]))
    found: dict[int, tuple[_Found, Tokens]] = {}
    for length, same in groupby(order, key=lambda number: len(encoded[number])):
        rows = list(same)
        check_length("to be read", texts[rows[0]], length, model.max_source_length)
        for start in range(0, len(rows), EVALUATION_BATCH):
            some = rows[start : start + EVALUATION_BATCH]
            sources = languages.read([texts[row] for row in some], device, model.copies)
            prefix, memory = model.begin(sources.numbers, sources.lengths, sources.copies)
            longest = max_length or 2 * length + 10
            if model.max_length is not None:
                longest = max(1, min(longest, model.max_length - prefix.shape[1]))
            found |= zip(some, zip(find(prefix, longest, memory), sources.unknown, strict=True), strict=True)
    ordered = [found[row] for row in range(len(texts))]
    return [each for each, _ in ordered], [unknown for _, unknown in ordered]


def copied_share(said: ModelOutput, right: Tensor, copies: Tensor | None) -> Tensor | None:
    """How much of the probability of each word that is said comes from words of the source, (B, T)."""
    if said.copied is None or said.weights is None or copies is None:
        return None
    same = copies[:, None] == right[..., None]
    taken = said.copied * (said.weights * same).sum(-1) / said.weights.sum(-1)
    return taken / said.logits.softmax(-1).gather(-1, right.clamp(min=0)[..., None])[..., 0]


def bleu_and_chrf(said: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Of a whole corpus, without regard to capital letters, by sacrebleu (Post 2018).

    Args:
        said: N texts.
        references: N times one or more right ones.
    """
    bleu, chrf = _scored(said, references)
    return {"bleu": bleu[0], "chrf": chrf[0]}


def signatures(said: Sequence[str], references: Sequence[Sequence[str]]) -> str:
    """How BLEU and chrF are computed, in the words of sacrebleu; see :func:`bleu_and_chrf`."""
    bleu, chrf = _scored(said, references)
    return f"BLEU  {bleu[1]}\nchrF  {chrf[1]}\n"


def _scored(said: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[float, str]]:
    """Score and signature of BLEU and of chrF."""
    from sacrebleu import BLEU, CHRF

    most = max(map(len, references))
    streams: list[Any] = [[each[place] if place < len(each) else None for each in references] for place in range(most)]
    measures = BLEU(lowercase=True), CHRF(lowercase=True)
    return [(each.corpus_score(said, streams).score, str(each.get_signature())) for each in measures]
