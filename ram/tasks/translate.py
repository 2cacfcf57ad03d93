"""Sequence-to-sequence learning: translation, reversal, transliteration, inflection and the like."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from envs.errors import InputError
from envs.splits import IGNORE_INDEX, Split
from envs.validation import check_probability
from ram.baselines import Baseline
from ram.corpora import Examples, PairCorpus, Tokens
from ram.corpora.batches import pad
from ram.corpora.subwords import Subwords
from ram.corpora.vocabulary import PADDING, UNKNOWN, teacher_forcing_batch
from ram.corpora.vocabulary_pair import SourceBatch, VocabularyPair, target_tokens
from ram.distributed import global_mean
from ram.inference.text import check_length
from ram.inference.translation import Generated, TextTranslator, generate
from ram.metrics.translation import bleu_and_chrf, check_tokenizer, signatures
from ram.plots.alignment import alignment
from ram.plots.curves import accuracy_by_length
from ram.sequence.interfaces import ModelOutput
from ram.sequence.search import SPECIAL_TOKENS, Search
from ram.sequence.seq2seq import Seq2SeqModel
from ram.tasks import Artifact, StepResult, substate
from ram.tasks.corpus import CorpusTask, answer_loss, check_vocabulary_unchanged, cross_entropy

Monitor = Literal["bleu", "exact", "perplexity"]

_NUM_WRITTEN, _NUM_DRAWN, _NUM_COUNTED = 24, 3, 2000


@dataclass(frozen=True)
class Batch:
    """B sources and their targets.

    Attributes:
        sources: the encoded sources.
        decoder_inputs: (B, T) int64, the start symbol and the target.
        targets: (B, T) int64, the target and the end symbol, padded with IGNORE_INDEX.
    """

    sources: SourceBatch
    decoder_inputs: Tensor
    targets: Tensor


class TranslateTask(CorpusTask[Examples]):
    """Trains a :class:`ram.sequence.seq2seq.Seq2SeqModel` by cross-entropy, and its hard attention by REINFORCE.

    Args:
        corpus: the data set of source and target texts.
        model: builds the model; called with ``source_size``, ``target_size`` and ``shared``.
        baseline: builds the baseline of hard attention. The reward of a step is the log-probability of its target.
        batch_size: pairs per step.
        min_count: minimum number of occurrences of a word in training; other words are unknown. Not used for subwords.
        subwords: number of subwords to learn by byte-pair encoding; None for words.
        shared_vocabulary: use one vocabulary of sources and targets.
        label_smoothing: probability mass spread over all words, in [0, 1) (Szegedy et al. 2016, section 7).
        source_weight: weight of the loss of the source, if the model predicts it too.
        scheduled_sampling: probability of replacing a decoder input by a sample of the model at the end of training, in
            [0, 1]; it grows linearly from 0 (Bengio et al. 2015). The samples come from a teacher-forced pass
            (Mihaylova and Martins 2019).
        policy_weight: weight of the loss of hard attention.
        gamma: discount factor of the rewards of later steps, in [0, 1].
        search: options of the search in evaluation.
        monitor: metric of the best checkpoint: "bleu", "exact" or "perplexity".
        bleu: compute BLEU and chrF.
        bleu_tokenizer: sacrebleu's, such as "13a", "char" or "ja-mecab"; None chooses by the script of the references.
        seed: of weights, batches and noise.
        device: of the model and the batches.
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
        gamma: float = 0.0,
        search: Search | None = None,
        monitor: Monitor = "perplexity",
        bleu: bool = True,
        bleu_tokenizer: str | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        check_probability("task.label_smoothing", label_smoothing)
        for name, value in [("scheduled_sampling", scheduled_sampling), ("gamma", gamma)]:
            if not 0 <= value <= 1:
                raise InputError(f"task.{name} must be in [0, 1], got {value}.")
        if monitor not in get_args(Monitor) or (monitor == "bleu" and not bleu):
            raise InputError(f"task.monitor must be exact, perplexity, or bleu with task.bleu=true; got {monitor!r}.")
        if bleu and bleu_tokenizer is not None:
            check_tokenizer(bleu_tokenizer)
        super().__init__(corpus, batch_size, min_count, policy_weight, seed, device)
        self.label_smoothing, self.source_weight = label_smoothing, source_weight
        self.scheduled_sampling, self.gamma = scheduled_sampling, gamma
        self.search, self.bleu, self.bleu_tokenizer = search or Search(), bleu, bleu_tokenizer
        self.monitor: str = monitor
        self.vocabularies = VocabularyPair.from_examples(self.split("train"), min_count, subwords, shared_vocabulary)
        if not hasattr(corpus, "detokenize"):
            raise InputError("task=translate needs a corpus with a detokenizer, such as corpus=reversal.")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = model(**self.vocabularies.sizes())
            self.baseline = baseline(feature_size=self.model.feature_size, rollouts_per_image=1)
        self._check_model()
        self.to(self.device)

    def _check_model(self) -> None:
        """Refuses options and texts that the model cannot process."""
        if self.model.can_copy and not self.vocabularies.shared and isinstance(self.vocabularies.target, Subwords):
            raise InputError("task.model.copy=true with task.subwords needs task.shared_vocabulary=true.")
        if self.source_weight and not self.model.models_source:
            raise InputError(
                f"task.source_weight={self.source_weight} needs a model of the source: choose task=decoder_only."
            )
        if (self.model.max_source_length, self.model.max_length) == (None, None):
            return
        for split, examples in self._splits.items():
            for index, (text, target) in enumerate(zip(examples.texts, target_tokens(examples), strict=True)):
                location = examples.describe_location(index, split)
                source_length = len(self.vocabularies.source.encode(text))
                check_length(location, text, source_length, self.model.max_source_length)
                length = self.model.prefix_length(source_length) + len(self.vocabularies.target.encode(target))
                check_length(f"to generate {location}", target, length, self.model.max_length)

    def higher_is_better(self, metric: str) -> bool:
        return metric in ("accuracy", "exact", "bleu", "chrf")

    @staticmethod
    def lengths(examples: Examples) -> list[int]:
        return [len(text) + len(target) for text, target in zip(examples.texts, target_tokens(examples), strict=True)]

    def make_batch(self, examples: Examples) -> Batch:
        """Encodes examples."""
        sources = self.vocabularies.source_batch(examples.texts, self.device, self.model.can_copy)
        targets = [
            self.vocabularies.target.encode(target, unknown)
            for target, unknown in zip(target_tokens(examples), sources.unknown, strict=True)
        ]
        return Batch(sources, *teacher_forcing_batch(targets, self.device))

    def forward(self, step: int) -> StepResult:
        batch = self.make_batch(self.training_batch(step))
        mask = batch.targets != IGNORE_INDEX
        output = self._decode(batch, self._sampled_inputs(batch), mask=mask)
        # Copied words out of vocabulary have no smoothed labels.
        num_smoothed = len(self.vocabularies.target)
        losses, mean = answer_loss(output.logits, batch.targets[mask], self.label_smoothing, num_smoothed)
        terms = {"loss/answer": mean}
        if self.source_weight:
            assert output.source_logits is not None
            token_ids = batch.sources.token_ids
            token_ids = token_ids.masked_fill(token_ids == PADDING, IGNORE_INDEX)
            count = (token_ids != IGNORE_INDEX).sum()
            source_loss = cross_entropy(output.source_logits, token_ids).sum() / count
            terms["loss/source"] = self.source_weight * global_mean(source_loss, count)
        return self.step_result(output, batch.targets, losses, terms, self.gamma)

    def correct(self, output: ModelOutput, targets: Tensor) -> Tensor:
        """Returns which predictions are correct; predicting the unknown word is not."""
        return super().correct(output, targets) & (targets != UNKNOWN)

    def _decode(
        self, batch: Batch, decoder_inputs: Tensor, need_weights: bool = False, mask: Tensor | None = None
    ) -> ModelOutput:
        """Runs the model on the sources of a batch."""
        sources = batch.sources
        return self.model(sources.token_ids, sources.lengths, decoder_inputs, sources.copy_ids, need_weights, mask)

    def _sampled_inputs(self, batch: Batch) -> Tensor:
        """Returns the decoder inputs, some of them replaced by samples of the model."""
        probability, inputs = self.scheduled_sampling * self.progress, batch.decoder_inputs
        if not probability:
            return inputs
        with torch.no_grad():
            logits = self._decode(batch, inputs).logits[:, :-1].clone()
            logits[..., SPECIAL_TOKENS] = -math.inf
            samples = torch.multinomial(logits.flatten(0, 1).softmax(-1), 1).view_as(inputs[:, 1:])
        replaced = torch.rand(samples.shape, device=samples.device) < probability
        replaced &= batch.targets[:, 1:] != IGNORE_INDEX  # padding stays
        return torch.cat([inputs[:, :1], torch.where(replaced, samples, inputs[:, 1:])], dim=1)

    @torch.no_grad()
    def evaluate(self, split: Split) -> dict[str, float]:
        """Returns metrics of teacher forcing and of generation; see :meth:`evaluate_generation`.

        Of teacher forcing: perplexity, accuracy in percent, and for corpora with alignments the share of aligned target
        words in percent whose largest attention weight is on another source word.
        """
        batches = self.map_by_length(self._teacher_forcing, split)
        losses, correct, misaligned = (torch.cat(parts) for parts in zip(*batches, strict=True))
        metrics = {
            "perplexity": float(losses.double().mean().exp()),
            "accuracy": 100 * float(correct.float().mean()),
        }
        if len(misaligned):
            metrics["alignment_error"] = 100 * float(misaligned.float().mean())
        return metrics | self.evaluate_generation(split)

    def _teacher_forcing(self, examples: Examples) -> tuple[Tensor, Tensor, Tensor]:
        """Computes the loss of every target, whether it is predicted, and whether each aligned target is misaligned."""
        batch = self.make_batch(examples)
        has_alignments = examples.alignments is not None and self.vocabularies.word_level
        mask, misaligned = batch.targets != IGNORE_INDEX, torch.empty(0, dtype=torch.bool)
        output = self._decode(batch, batch.decoder_inputs, has_alignments, mask)
        if has_alignments and output.weights is not None:
            aligned = pad([[*row, IGNORE_INDEX] for row in examples.alignments or ()], self.device, IGNORE_INDEX)[0]
            misaligned = (output.weights.argmax(-1) != aligned)[aligned >= 0]
        targets = batch.targets[mask]
        losses, correct = cross_entropy(output.logits, targets), self.correct(output, targets)
        return losses.cpu(), correct.cpu(), misaligned.cpu()

    def evaluate_generation(self, split: Split, beam_size: int | None = None) -> dict[str, float]:
        """Returns exact matches in percent, BLEU and chrF of the best hypotheses of the search."""
        examples = self.split(split)
        predictions = self.map_parts(lambda part: self._predictions(part, beam_size), examples)
        metrics = {"exact": 100 * sum(self._exact(predictions, examples)) / len(predictions)}
        if self.bleu:
            metrics |= bleu_and_chrf(predictions, self._references(examples), self.bleu_tokenizer)
        return metrics

    def generate(self, examples: Examples, beam_size: int | None = None, n_best: int = 1) -> list[Generated]:
        """Returns the ``n_best`` hypotheses of the search for every example."""
        size = self.search.beam_size if beam_size is None else beam_size
        return generate(self.model, self.vocabularies, examples.texts, self.search, self.device, size, n_best)

    def _predictions(self, examples: Examples, beam_size: int | None = None) -> list[str]:
        """Returns the text of the best hypothesis for every example."""
        return [self.corpus.detokenize(best[0][0]) for best in self.generate(examples, beam_size)]

    def _references(self, examples: Examples) -> tuple[tuple[str, ...], ...]:
        if examples.references is None:
            return tuple((self.corpus.detokenize(target),) for target in target_tokens(examples))
        return examples.references

    def _exact(self, predictions: Sequence[str], examples: Examples) -> list[bool]:
        """Returns whether each prediction equals a reference or the detokenized target."""
        rows = zip(predictions, self._references(examples), target_tokens(examples), strict=True)
        return [text in references or text == self.corpus.detokenize(target) for text, references, target in rows]

    @torch.no_grad()
    def pictures(self, split: Split) -> dict[str, Artifact]:
        """Returns some translations with their attention weights, and the exact matches by length of the source."""
        examples = self.split(split)
        examples = examples.select(range(min(_NUM_WRITTEN, len(examples))))
        predictions = [best[0][0] for best in self.generate(examples)]
        batch = self.make_batch(Examples(examples.texts, tuple(predictions)))
        output = self._decode(batch, batch.decoder_inputs, need_weights=True)
        references = self._references(examples)
        shares = copied_share(output, batch.targets, batch.sources.copy_ids)
        lines = []
        for row, (text, words) in enumerate(zip(examples.texts, predictions, strict=True)):
            marked = list(words) if shares is None else self._mark_copied(words, batch.targets[row], shares[row])
            lines += [f"source      {' '.join(text)}", f"reference   {references[row][0]}"]
            lines += [f"prediction  {' '.join(marked)}", ""]
        artifacts: dict[str, Artifact] = {"translations.txt": "\n".join(lines)}
        if self.bleu:
            texts = [self.corpus.detokenize(words) for words in predictions]
            artifacts["bleu.txt"] = signatures(texts, references, self.bleu_tokenizer)
        if output.weights is not None:
            artifacts |= self._alignments(examples, batch, output.weights, shares)
        return artifacts | self._accuracy_by_length(split)

    def _mark_copied(self, words: Tokens, targets: Tensor, shares: Tensor) -> list[str]:
        """Puts copied words in brackets; ``targets`` (T,) are their token ids with the end symbol."""
        marked = list(words)
        token_ids = targets[targets != IGNORE_INDEX].tolist()[:-1]
        for position, share in zip(self.vocabularies.target.positions(token_ids), shares.tolist(), strict=False):
            if share > 0.5:
                marked[position] = f"[{words[position]}]"
        return marked

    def _alignments(
        self, examples: Examples, batch: Batch, weights: Tensor, shares: Tensor | None
    ) -> Iterator[tuple[str, Artifact]]:
        """Yields figures of the attention weights of some examples from short to long."""
        by_length = sorted(range(len(examples)), key=lambda row: len(examples.texts[row]))
        sources = batch.sources
        for number in range(_NUM_DRAWN):
            row = by_length[(2 * number + 1) * len(by_length) // (2 * _NUM_DRAWN)]
            keys: Sequence[str] = examples.texts[row]
            if not self.vocabularies.word_level:
                keys = self.vocabularies.source.ids_to_tokens(sources.token_ids[row, : sources.lengths[row]].tolist())
            targets = batch.targets[row]
            targets = targets[targets != IGNORE_INDEX]
            queries = self.vocabularies.target.ids_to_tokens(targets.tolist(), sources.unknown[row])
            if shares is not None:
                pairs = zip(queries, shares[row].tolist(), strict=False)
                queries = [f"[{query}]" if share > 0.5 else query for query, share in pairs]
            yield f"alignment_{number + 1}.png", alignment(weights[row, : len(queries), : len(keys)], queries, keys)

    def _accuracy_by_length(self, split: Split) -> dict[str, Artifact]:
        """Returns the exact matches of some examples by the number of words of the source."""
        examples = self.split(split)
        examples = examples.select(range(0, len(examples), -(-len(examples) // _NUM_COUNTED)))
        counts: dict[int, tuple[int, int]] = dict.fromkeys(sorted(map(len, examples.texts)), (0, 0))
        for text, exact in zip(examples.texts, self._exact(self._predictions(examples), examples), strict=True):
            correct, total = counts[len(text)]
            counts[len(text)] = correct + exact, total + 1
        rows = [f"{length},{correct},{total}" for length, (correct, total) in counts.items()]
        table = "\n".join(["length,correct,texts", *rows]) + "\n"
        return {"lengths.png": accuracy_by_length({"": counts}), "lengths.csv": table}

    def get_extra_state(self) -> dict[str, Any]:
        """Returns the vocabularies, which :meth:`restore` needs besides the weights."""
        return self.vocabularies.state()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Refuses the state of a task with other words."""
        saved, present = (
            {f"{side} words": words for side, words in vocabularies.items()}
            for vocabularies in (state, self.vocabularies.state())
        )
        check_vocabulary_unchanged(saved, present)

    @classmethod
    def restore(cls, state: Mapping[str, Any], arguments: Mapping[str, Any]) -> TextTranslator:
        vocabularies = VocabularyPair.restore(state["_extra_state"])
        model = arguments["model"](**vocabularies.sizes())
        model.load_state_dict(substate(state, "model."))
        search = arguments["search"] or Search()
        return TextTranslator(model, vocabularies, arguments["corpus"], search, arguments["device"])


def copied_share(output: ModelOutput, targets: Tensor, copy_ids: Tensor | None) -> Tensor | None:
    """Computes the share of the probability of each target that comes from copying source words.

    Args:
        output: of B target sequences.
        targets: (B, T) token ids.
        copy_ids: (B, N), the source in the target vocabulary.

    Returns:
        (B, T); None for a model that does not copy.
    """
    if output.copied is None or output.weights is None or copy_ids is None:
        return None
    same = copy_ids[:, None] == targets[..., None]
    copied = output.copied * (output.weights * same).sum(-1) / output.weights.sum(-1)
    return copied / output.logits.softmax(-1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
