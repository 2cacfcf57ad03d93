"""Image captioning with soft attention, hard attention or glimpses (Xu et al. 2015)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from envs.errors import InputError
from envs.random import RowRandom
from envs.splits import IGNORE_INDEX, Split
from envs.validation import check_positive_integers, check_probability, check_weight
from ram.baselines import Baseline
from ram.captioning.captioner import Captioner
from ram.corpora import CaptionCorpus, Captions, Tokens
from ram.corpora.batches import EVALUATION_BATCH_SIZE
from ram.corpora.vocabulary import END, SPECIAL, Vocabulary, build_vocabulary, teacher_forcing_batch
from ram.distributed import global_mean, parallel_map
from ram.inference.captions import ImageCaptioner, decoder_inputs, generate, max_caption_length, to_float
from ram.inference.text import check_length
from ram.metrics.captions import Cider, bleu, rouge_l, sentence_bleu
from ram.metrics.pointing import entropy, pointing
from ram.patch_classifier import PatchClassifier
from ram.plots.captions import caption_strips
from ram.sequence.interfaces import Memory
from ram.sequence.search import Search, index_rows, sample
from ram.tasks import Artifact, StepResult, substate
from ram.tasks.corpus import CorpusTask, answer_loss, cross_entropy
from ram.tasks.self_critical import self_critical_loss

Monitor = Literal["cider", "bleu_4", "correct", "perplexity"]
Reward = Literal["cider", "bleu"]

_FIGURE_EXAMPLES, _TEXT_EXAMPLES = 6, 24


class CaptionTask(CorpusTask[Captions]):
    """Trains a :class:`ram.captioning.captioner.Captioner` by cross-entropy, and its hard choices by REINFORCE.

    Each step encodes every image of its batch once and trains ``captions_per_image`` of its captions: one drawn at
    random and those that follow it. With a ``reward``, training is self-critical instead (Rennie et al. 2017): captions
    are sampled and rewarded relative to the greedy caption. It needs the weights of an earlier run, and trains the
    tokens only: hard attention and glimpses use their mode, and the options of cross-entropy, of attention maps and of
    hard choices have no effect.

    Args:
        corpus: provides images and captions.
        model: builds the network from ``vocabulary_size`` and ``image_shape``.
        baseline: builds the baseline of the hard choices.
        batch_size: images per step.
        captions_per_image: largest number of captions of an image per step; images with fewer have less weight.
        rollouts_per_image: samples of the hard choices of every caption; with a reward, sampled captions of an image.
        min_count: smallest count in training of a word of the vocabulary.
        label_smoothing: share of the target distribution that is uniform over all tokens, in [0, 1).
        coverage: weight of the doubly stochastic penalty, the mean over the cells of (1 - sum over the words of the
            weights)^2 (Xu et al. 2015, equation 14, sum over the cells).
        map_entropy: weight of the mean entropy of soft attention maps in nats; it grows linearly from 0 to this value
            over the budget (after Grandvalet and Bengio 2005). It makes attention choose one of several objects that
            may be named next. With several heads it is the entropy of their mean.
        entropy: weight of the entropy of hard choices in their reward, per nat.
        patch_reward: with glimpses, weight of an additional reward of each location: the log-probability of the next
            token given the patch alone, in nats and at least -4; see :class:`ram.patch_classifier.PatchClassifier`. It
            is not part of the return of earlier choices. 0 for no such reward.
        policy_weight: weight of the REINFORCE loss of the hard choices.
        gamma: discount of the rewards of later words; 0 rewards a choice by the log-probability of its own word.
        reward: "cider" or "bleu" of sampled captions; None for cross-entropy.
        search: options of the decoding in evaluation.
        monitor: metric that chooses the best checkpoint: "cider", "bleu_4", "perplexity", or "correct" if the corpus
            evaluates captions.
        augmentation: called as ``augmentation(images, random)`` on the images of each step, or None.
        seed: of weights, batches and noise.
        device: where the task computes.
    """

    unit = "images"
    examples = Captions
    corpus: Any

    def __init__(
        self,
        corpus: CaptionCorpus,
        model: Callable[..., Captioner],
        baseline: Callable[..., Baseline],
        batch_size: int = 64,
        captions_per_image: int = 1,
        rollouts_per_image: int = 1,
        min_count: int = 1,
        label_smoothing: float = 0.0,
        coverage: float = 0.0,
        map_entropy: float = 0.0,
        entropy: float = 0.0,
        patch_reward: float = 0.0,
        policy_weight: float = 1.0,
        gamma: float = 0.0,
        reward: Reward | None = None,
        search: Search | None = None,
        monitor: Monitor = "cider",
        augmentation: Callable[[Tensor, RowRandom], Tensor] | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        check_probability("task.label_smoothing", label_smoothing)
        check_positive_integers("task", captions_per_image=captions_per_image, rollouts_per_image=rollouts_per_image)
        weights = {"coverage": coverage, "map_entropy": map_entropy, "entropy": entropy}
        _check_options(gamma, reward, augmentation, **weights, patch_reward=patch_reward)
        if monitor not in get_args(Monitor) or (monitor == "correct" and not hasattr(corpus, "evaluate")):
            raise InputError(
                f"task.monitor must be cider, bleu_4, perplexity, or correct with corpus=scenes; got {monitor!r}."
            )
        super().__init__(corpus, batch_size, min_count, policy_weight, seed, device)
        self.captions_per_image, self.rollouts = captions_per_image, rollouts_per_image
        self.label_smoothing, self.coverage, self.map_entropy = label_smoothing, coverage, map_entropy
        self.entropy, self.gamma, self.reward, self.augmentation = entropy, gamma, reward, augmentation
        self.search, self.monitor = search or Search(), monitor
        train = self.split("train")
        self.vocabulary = build_vocabulary(list(chain(*train.captions)), min_count)
        self.image_shape = tuple(train.images.shape[1:])
        self._reward = Cider.from_references(_with_end(train.captions)) if reward == "cider" else _bleu_share
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = model(vocabulary_size=len(self.vocabulary), image_shape=self.image_shape)
            self.baseline = baseline(feature_size=self.model.feature_size, rollouts_per_image=rollouts_per_image)
            self.patch_classifier = self._build_patch_classifier(patch_reward)
        self.to(self.device)
        if self.model.max_length is not None:
            for split in get_args(Split):
                longest = max(chain(*self.split(split).captions), key=len)
                check_length(f"in the {split} split", longest, len(longest), self.model.max_length - 1)

    def _build_patch_classifier(self, weight: float) -> PatchClassifier | None:
        if not weight:
            return None
        if not self.model.patch_features:
            raise InputError("task.patch_reward needs glimpses: set decoder=glimpse or task.patch_reward=0.")
        if self.reward is not None:
            raise InputError(f"task.reward={self.reward} trains the tokens only: set task.patch_reward=0.")
        return PatchClassifier(self.model.patch_features, len(self.vocabulary), weight)

    @staticmethod
    def lengths(examples: Captions) -> list[int]:
        # Equal for all: in batches of captions of one length, batch normalization would reveal that length.
        return [0] * len(examples)

    def forward(self, step: int) -> StepResult:
        examples = self.training_batch(step)
        self.model.anneal(self.progress)
        images = to_float(examples.images.to(self.device))
        if self.augmentation is not None:
            rows = torch.arange(len(images), device=self.device) + self.first_row(step)
            images = self.augmentation(images, RowRandom(rows + self.seed * 2**32, torch.full_like(rows, step)))
        if self.reward is None:
            return self._cross_entropy_step(images, self._draw_captions(examples, step))
        return self._self_critical_step(images, examples)

    def teacher_forcing(self, captions: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
        """Returns decoder inputs and targets of captions; see :func:`ram.corpora.vocabulary.teacher_forcing_batch`."""
        return teacher_forcing_batch([self.vocabulary.encode(caption) for caption in captions], self.device)

    def _cross_entropy_step(self, images: Tensor, captions: Sequence[Sequence[Tokens]]) -> StepResult:
        (inputs, targets), memory = self.teacher_forcing(list(chain(*captions))), self.model.encode(images)
        if max(self.captions_per_image, self.rollouts) > 1:
            rows = [image for image, some in enumerate(captions) for _ in range(len(some) * self.rollouts)]
            inputs, targets = (tensor.repeat_interleave(self.rollouts, 0) for tensor in (inputs, targets))
            memory = index_rows(memory, torch.tensor(rows, device=self.device))
        mask = targets != IGNORE_INDEX
        output = self.model.decode(inputs, memory, None, bool(self.coverage or self.map_entropy), mask)
        losses, mean = answer_loss(output.logits, targets[mask], self.label_smoothing)
        terms = {"loss/answer": mean} | self._attention_penalties(output.weights, mask)
        # The expected gradient of log pi is zero, so the reward -log pi has the gradient of the entropy.
        bonus = 0 if output.log_prob is None else self.entropy * output.log_prob.detach()[mask]
        immediate = None
        if self.patch_classifier is not None:
            assert output.patch_features is not None
            log_prob = self.patch_classifier(output.patch_features[mask], targets[mask])
            terms["loss/patch"] = global_mean(-log_prob.mean(), len(log_prob))
            immediate = self.patch_classifier.reward(log_prob)
        return self.step_result(output, targets, losses + bonus, terms, self.gamma, immediate=immediate)

    def _draw_captions(self, examples: Captions, step: int) -> list[tuple[Tokens, ...]]:
        """Draws a caption of every image, and returns it with those that follow it, cyclically."""
        drawn = []
        for captions, share in zip(examples.captions, self.uniform(step).tolist(), strict=True):
            first = int(share * len(captions))
            drawn.append((captions[first:] + captions[:first])[: self.captions_per_image])
        return drawn

    def _attention_penalties(self, weights: Tensor | None, mask: Tensor) -> dict[str, Tensor]:
        """Computes the coverage and entropy penalties of attention weights (B, T, N), over the words in ``mask``."""
        terms = {}
        if self.coverage and weights is not None:
            sums = (weights * mask[..., None]).sum(1)
            terms["loss/coverage"] = self.coverage * global_mean((1 - sums).square().mean(), len(sums))
        if self.map_entropy:
            if weights is None or not _is_soft(weights):
                raise InputError("task.map_entropy needs soft attention with normalized weights: set it to 0.")
            mean = global_mean(entropy(weights)[mask].mean(), mask.sum())
            terms["loss/map_entropy"] = self.map_entropy * self.progress * mean
        return terms

    def _self_critical_step(self, images: Tensor, examples: Captions) -> StepResult:
        self.model.eval()  # the loss is that of the distribution that is sampled, without dropout
        limit = max_caption_length(self.model, self.search)
        prefix, memory = self.model.start_decoding(images)
        greedy = sample(self.model, prefix, limit, memory, temperature=0)
        rows = torch.arange(len(images), device=self.device).repeat_interleave(self.rollouts)
        prefix, memory = index_rows((prefix, memory), rows)
        sampled = sample(self.model, prefix, limit, memory)
        # A caption of the maximum length was not sampled with its end symbol.
        inputs, targets = (tensor[:, :limit] for tensor in teacher_forcing_batch(sampled, self.device))
        output = self.model.decode(inputs, memory)
        reward = self._caption_reward(sampled, [examples.captions[row] for row in rows.tolist()])
        greedy_reward = self._caption_reward(greedy, examples.captions)[rows]
        loss = self_critical_loss(output, targets, reward, greedy_reward, rows)
        self.model.train()
        return StepResult(loss, lambda: {"loss/policy": loss.item(), "train/reward": reward.mean().item()})

    def _caption_reward(self, token_ids: Sequence[Sequence[int]], references: Sequence[Sequence[Tokens]]) -> Tensor:
        """Computes the reward of captions, (B,).

        The end symbol counts as a word; without it truncated captions would have higher rewards.
        """
        limit = max_caption_length(self.model, self.search)
        captions = [tuple(self.vocabulary.decode(each)) for each in token_ids]
        captions = [each if len(each) == limit else (*each, SPECIAL[END]) for each in captions]
        return torch.tensor(self._reward(captions, _with_end(references)), device=self.device)

    def higher_is_better(self, metric: str) -> bool:
        return metric not in ("perplexity", "map_entropy", "map_change")

    @torch.no_grad()
    def evaluate(self, split: Split) -> dict[str, float]:
        """Measures generated captions, and the perplexity of the references.

        Generated captions are measured by BLEU-1 to BLEU-4, ROUGE-L, CIDEr-D, the metrics of the corpus, and those of
        :func:`ram.metrics.pointing.pointing`. On the test split, ``nearest_...`` are the metrics of a control: each
        image gets a caption of the training image whose encoding is nearest.
        """
        examples = self.split(split)
        captions = self.map_parts(self.generate, examples)
        metrics = self._caption_metrics(captions, examples)
        if split == "test":
            nearest = self._caption_metrics(self._nearest_captions(examples), examples)
            metrics |= {f"nearest_{name}": value for name, value in nearest.items()}

        def losses_and_maps(rows: Tensor) -> tuple[list[Tensor], list[Tensor]]:
            batch = examples.select(rows.tolist())
            memory = self.model.encode(to_float(batch.images.to(self.device)))
            return self._token_losses(memory, batch), self._attention_maps(memory, [captions[row] for row in rows])

        batches = parallel_map(losses_and_maps, torch.arange(len(examples)).split(EVALUATION_BATCH_SIZE))
        losses, maps = (list(chain(*parts)) for parts in zip(*batches, strict=True))
        metrics["perplexity"] = float(torch.cat(losses).double().mean().exp())
        if maps:
            named: list[Any] = [()] * len(maps)
            if examples.annotations is not None:
                named = list(map(self.corpus.mentioned_objects, captions, examples.annotations))
            grid = self.model.image_encoder.grid
            metrics |= pointing(maps, grid, self.image_shape[1:], examples.boxes, named)
        return metrics

    def evaluate_generation(self, split: Split, beam_size: int | None = None) -> dict[str, float]:
        """Measures generated captions by BLEU, ROUGE-L, CIDEr-D and the metrics of the corpus."""
        examples = self.split(split)
        captions = self.map_parts(lambda part: self.generate(part, beam_size), examples)
        return self._caption_metrics(captions, examples)

    def generate(self, examples: Captions, beam_size: int | None = None) -> list[Tokens]:
        """Generates the best caption of every image by beam search."""
        size, images = self.search.beam_size if beam_size is None else beam_size, examples.images.to(self.device)
        return [best[0] for best in generate(self.model, self.vocabulary, images, self.search, size)]

    def _caption_metrics(self, captions: Sequence[Tokens], examples: Captions) -> dict[str, float]:
        metrics, cider = bleu(captions, examples.captions), Cider.from_references(examples.captions)
        metrics["rouge_l"] = sum(rouge_l(captions, examples.captions)) / len(captions)
        metrics["cider"] = sum(cider(captions, examples.captions)) / len(captions)
        if examples.annotations is not None:
            metrics |= self.corpus.evaluate(captions, examples.annotations)
        return metrics

    def _token_losses(self, memory: Memory, batch: Captions) -> list[Tensor]:
        """Computes the cross-entropy of every token of the references in nats, one tensor (n,) per caption index."""
        losses = []
        for index in range(max(map(len, batch.captions))):
            rows = [row for row, captions in enumerate(batch.captions) if len(captions) > index]
            inputs, targets = self.teacher_forcing([batch.captions[row][index] for row in rows])
            mask = targets != IGNORE_INDEX
            logits = self.model.decode(inputs, index_rows(memory, torch.tensor(rows)), mask=mask).logits
            losses.append(cross_entropy(logits, targets[mask]).cpu())
        return losses

    def _attention_maps(self, memory: Memory, captions: Sequence[Tokens]) -> list[Tensor]:
        """Returns the attention weights (T, N) of the words of every caption; none without attention."""
        inputs = decoder_inputs(self.model, self.vocabulary, captions, self.device)
        weights = self.model.decode(inputs, memory, need_weights=True).weights
        if weights is None:
            return []
        return [rows[: len(caption)].cpu() for rows, caption in zip(weights, captions, strict=True)]

    def _nearest_captions(self, examples: Captions) -> list[Tokens]:
        """Returns the first caption of the training image whose encoding has the largest cosine similarity."""
        train = self.split("train")
        features, train_features = (self._image_features(each.images) for each in (examples, train))
        return [train.captions[index][0] for index in (features @ train_features.mT).argmax(1).tolist()]

    def _image_features(self, images: Tensor) -> Tensor:
        """Returns the normalized image encodings, averaged to a grid of 4 x 4: (N, C, H, W) -> (N, 16 * D)."""
        encoder, features = self.model.image_encoder, []
        for batch in images.split(EVALUATION_BATCH_SIZE):
            grid = encoder(to_float(batch.to(self.device))).mT.unflatten(2, encoder.grid)
            features.append(F.normalize(F.adaptive_avg_pool2d(grid, 4).flatten(1), dim=1))
        return torch.cat(features)

    @torch.no_grad()
    def pictures(self, split: Split) -> dict[str, Artifact]:
        """Writes the generated captions of some images with their references, and draws the attention maps."""
        examples = self.split(split)
        examples = examples.select(_evenly_spaced(_TEXT_EXAMPLES, len(examples)))
        captions = self.generate(examples)
        lines = []
        for caption, references in zip(captions, examples.captions, strict=True):
            lines.append(f"generated  {' '.join(caption)}")
            lines += [*(f"reference  {' '.join(reference)}" for reference in references), ""]
        artifacts: dict[str, Artifact] = {"captions.txt": "\n".join(lines)}
        indices = _evenly_spaced(_FIGURE_EXAMPLES, len(examples))
        images, captions = to_float(examples.select(indices).images), [captions[index] for index in indices]
        inputs = decoder_inputs(self.model, self.vocabulary, captions, self.device)
        weights = self.model(images.to(self.device), inputs, need_weights=True).weights
        if weights is not None:
            grid = self.model.image_encoder.grid
            artifacts["captions.png"] = caption_strips(images, captions, weights.cpu(), grid, self.model.sensor)
        return artifacts

    def get_extra_state(self) -> dict[str, Any]:
        """Returns what a trained model needs besides its tensors."""
        return {"words": list(self.vocabulary.tokens), "image_shape": list(self.image_shape)}

    @classmethod
    def restore(cls, state: Mapping[str, Any], arguments: Mapping[str, Any]) -> ImageCaptioner:
        extra = state["_extra_state"]
        vocabulary, shape = Vocabulary(extra["words"]), tuple(extra["image_shape"])
        model = arguments["model"](vocabulary_size=len(vocabulary), image_shape=shape)
        model.load_state_dict(substate(state, "model."))
        corpus, search = arguments["corpus"], arguments["search"] or Search()
        return ImageCaptioner(model, vocabulary, shape, corpus, search, arguments["device"])


def _check_options(gamma: float, reward: Any, augmentation: Any, **weights: float) -> None:
    if not 0 <= gamma <= 1:
        raise InputError(f"task.gamma must be in [0, 1], got {gamma}.")
    for name, weight in weights.items():
        check_weight(f"task.{name}", weight)
    if reward is not None and reward not in get_args(Reward):
        raise InputError(f"task.reward must be null or one of {', '.join(get_args(Reward))}, got {reward!r}.")
    if augmentation is not None and not callable(augmentation):
        raise InputError(f"task.augmentation must be null or have a _target_, got {augmentation!r}.")


def _is_soft(weights: Tensor) -> bool:
    """Returns whether weights (B, T, N) are differentiable, nonnegative, and sum to at most 1."""
    differentiable = weights.requires_grad or not torch.is_grad_enabled()
    return differentiable and bool((weights >= 0).all() and (weights.sum(-1) < 1.001).all())


def _bleu_share(captions: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> list[float]:
    """Computes BLEU-4 of each caption, in [0, 1]."""
    return [score / 100 for score in sentence_bleu(captions, references)]


def _with_end(references: Sequence[Sequence[Tokens]]) -> list[list[Tokens]]:
    """Appends the end symbol to every caption."""
    return [[(*caption, SPECIAL[END]) for caption in captions] for captions in references]


def _evenly_spaced(count: int, total: int) -> list[int]:
    """Returns at most ``count`` evenly spaced indices below ``total``: files are often sorted by class."""
    count = min(count, total)
    return [index * total // count for index in range(count)]
