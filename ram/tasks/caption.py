"""Say what an image shows: captions by soft or hard attention, or by glimpses (Xu et al. 2015)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from envs.errors import InputError
from envs.random import RowRandom
from envs.splits import IGNORE_INDEX, Split
from envs.validation import check_positive_integers, check_probability, read_images
from ram.baselines import Baseline
from ram.captioning.captioner import Captioner
from ram.captioning.maps import entropy, pointing
from ram.corpora import Tokens
from ram.corpora.captions import CaptionCorpus, Captions
from ram.corpora.vocabulary import Vocabulary, learned
from ram.metrics.captions import Cider, bleu, rouge_l
from ram.plots.captions import strips
from ram.reinforce import policy_gradient_loss
from ram.sequence.search import Search, beam_search, index_rows, mask_special_tokens, sample
from ram.tasks import Artifact, StepResult, part
from ram.tasks.corpus import (
    EVALUATION_BATCH,
    CorpusTask,
    answer_loss,
    check_length,
    cross_entropy,
    teacher_forcing_batch,
)

Monitor = Literal["cider", "bleu_4", "right", "perplexity"]
Reward = Literal["cider", "bleu"]

_DRAWN, _WRITTEN, _LONGEST = 6, 24, 40
_END = ""  # which no word is


class ImageCaptioner:
    """A trained network with its words; what :func:`ram.load` returns.

    Args:
        model: the network.
        vocabulary: the words it knows.
        image_shape: (C, H, W) of the images it was trained on.
        corpus: of the kind it was trained on, for its way to write captions.
        search: how it goes on unless told otherwise.
        device: where it computes.
    """

    def __init__(
        self,
        model: Captioner,
        vocabulary: Vocabulary,
        image_shape: Sequence[int],
        corpus: CaptionCorpus,
        search: Search,
        device: str,
    ) -> None:
        self.model, self.vocabulary, self.corpus, self.search = model.to(device).eval(), vocabulary, corpus, search
        self.image_shape, self.device = tuple(image_shape), torch.device(device)

    def caption(self, images: Tensor | np.ndarray, beam_size: int | None = None) -> list[str]:
        """The best caption that is found for each image, (N, C, H, W), uint8 or float in [0, 1]."""
        return [best[0] for best in self.n_best(images, 1, beam_size)]

    def n_best(self, images: Tensor | np.ndarray, number: int, beam_size: int | None = None) -> list[list[str]]:
        """The best ``number`` that are found for each image, the best first; as :meth:`caption`."""
        size = max(number, self.search.beam_size) if beam_size is None else beam_size
        found = describe(self.model, self.vocabulary, self._checked(images), self.search, size, number)
        return [list(dict.fromkeys(map(self.corpus.detokenize, each))) for each in found]

    def sample(
        self,
        images: Tensor | np.ndarray,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> list[str]:
        """One caption of each image, every word of it sampled from those that are likely.

        Args:
            images: as for :meth:`caption`.
            temperature: see :func:`ram.sequence.search.truncated_probabilities`, like the next two.
            top_k: see there.
            top_p: see there.
            seed: of the samples.
        """
        generator = torch.Generator(self.device).manual_seed(seed)
        with torch.no_grad():
            prefix, memory = self.model.begin(_brightness(self._checked(images)))
        longest = self.search.max_length or _LONGEST
        found = sample(self.model, prefix, longest, memory, temperature, top_k, top_p, generator)
        return [self.corpus.detokenize(self.vocabulary.decode(words)) for words in found]

    @torch.no_grad()
    def look(self, images: Tensor | np.ndarray) -> tuple[list[Tokens], Tensor | None]:
        """The words of the best caption of each image, and where each looks.

        Returns:
            N captions; and the weights of every word and the end, (N, T, rows * columns), or None where nothing is
            weighed.
        """
        seen = self._checked(images)
        said = [best[0] for best in describe(self.model, self.vocabulary, seen, self.search, self.search.beam_size)]
        inputs = decoder_inputs(self.model, self.vocabulary, said, self.device)
        return said, self.model(_brightness(seen), inputs, need_weights=True).weights

    def _checked(self, images: Tensor | np.ndarray) -> Tensor:
        tensor = read_images("A captioner", images)
        if tuple(tensor.shape[1:]) != self.image_shape or not len(tensor):
            raise InputError(
                f"Images must be (N, {', '.join(map(str, self.image_shape))}) with N of at least 1, got "
                f"{tuple(tensor.shape)}."
            )
        return tensor.to(self.device)


class CaptionTask(CorpusTask[Captions]):
    """Trains a :class:`ram.captioning.captioner.Captioner` by cross-entropy, its hard choices by REINFORCE.

    A step sees every image of its batch once, and says ``captions_per_image`` of its captions: one drawn at random and
    those that follow it. With a reward it is self-critical instead (Rennie et al. 2017): captions are sampled, and paid
    by how much better they are than the likeliest one. The model must speak by then: it starts from the weights of an
    earlier run. A reward trains what is said, and not where hard attention or a glimpse looks, which is the likeliest
    place then; the options of cross-entropy, of maps and of hard choices are of no use beside it.

    Args:
        corpus: where images and captions come from.
        model: builds the network; given ``vocabulary_size`` and ``image_shape``.
        baseline: builds what the reward of hard choices is compared with.
        batch_size: images a step.
        captions_per_image: how many of an image's captions a step says; an image that has fewer counts less.
        rollouts_per_image: how often a step says each of them, with other hard choices; with a reward, how many
            captions of each image it samples.
        min_count: how often a word must come up in training to be known.
        label_smoothing: share of the answer that is spread over all words, in [0, 1).
        coverage: weight of the penalty for places that were not read once in all, the mean over the places (Xu et al.
            2015, equation 14, have the sum).
        map_entropy: weight of the penalty for the entropy of soft maps in nats, the mean over the words; it grows from
            nothing to this by the end of the budget (after Grandvalet and Bengio 2005). Where any of several things may
            be said next, attention then settles on one. Of several heads it is the entropy of their mean.
        entropy: what a nat of the hard choices' entropy is worth beside a nat of the right word's log-probability.
        policy_weight: of the hard choices' loss.
        gamma: discount of what later words earn a hard choice; 0 pays it by its own word.
        reward: what sampled captions are paid by: "cider" or "bleu"; None for cross-entropy.
        search: how the model goes on by itself where it is measured.
        monitor: what chooses the best checkpoint: "cider", "bleu_4", "perplexity", or "right" where the corpus judges.
        augmentation: called as ``augmentation(images, random)`` on the images of each step, or None.
        seed: of weights, batches and noise.
        device: where all is held.
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
        if not 0 <= gamma <= 1:
            raise InputError(f"task.gamma must be in [0, 1], got {gamma}.")
        for name, weight in {"coverage": coverage, "map_entropy": map_entropy, "entropy": entropy}.items():
            if not 0 <= weight < math.inf:
                raise InputError(f"task.{name} must be finite and not negative, got {weight}.")
        if reward is not None and reward not in get_args(Reward):
            raise InputError(f"task.reward must be null or one of {', '.join(get_args(Reward))}, got {reward!r}.")
        if monitor not in get_args(Monitor) or (monitor == "right" and not hasattr(corpus, "judge")):
            raise InputError(
                f"task.monitor must be cider, bleu_4, perplexity, or right with corpus=scenes; got {monitor!r}."
            )
        check_positive_integers("task", captions_per_image=captions_per_image, rollouts_per_image=rollouts_per_image)
        if augmentation is not None and not callable(augmentation):
            raise InputError(f"task.augmentation must be null or name a _target_, got {augmentation!r}.")
        super().__init__(corpus, batch_size, min_count, policy_weight, seed, device)
        self.captions_per_image, self.rollouts = captions_per_image, rollouts_per_image
        self.label_smoothing, self.coverage, self.map_entropy = label_smoothing, coverage, map_entropy
        self.entropy, self.gamma = entropy, gamma
        self.reward, self.augmentation = reward, augmentation
        self.search, self.monitor, self.maximize = search or Search(), monitor, monitor != "perplexity"
        train = self.split("train")
        self.vocabulary = learned(list(chain(*train.captions)), min_count)
        self.image_shape = tuple(train.images.shape[1:])
        self._cider = Cider.of(_ended(train.captions)) if reward == "cider" else None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = model(vocabulary_size=len(self.vocabulary), image_shape=self.image_shape)
            self.baseline = baseline(feature_size=self.model.feature_size, rollouts_per_image=rollouts_per_image)
        self.to(self.device)
        if self.model.max_length is not None:
            for split in get_args(Split):
                longest = max(chain(*self.split(split).captions), key=len)
                check_length(f"in the {split} split", longest, len(longest), self.model.max_length - 1)

    @staticmethod
    def lengths(examples: Captions) -> list[int]:
        # All alike: in batches of one length, batch normalisation would tell how much there is to say.
        return [0] * len(examples)

    def ask(self, captions: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
        """What some captions go on from and what is to be said; see :func:`ram.tasks.corpus.teacher_forcing_batch`."""
        return teacher_forcing_batch([self.vocabulary.encode(caption) for caption in captions], self.device)

    def forward(self, step: int) -> StepResult:
        examples = self.begin(step)
        self.model.anneal(self.progress)
        images = _brightness(examples.images.to(self.device))
        if self.augmentation is not None:
            rows = torch.arange(len(images), device=self.device)
            images = self.augmentation(images, RowRandom(rows + self.seed * 2**32, torch.full_like(rows, step)))
        if self.reward is not None:
            return self._self_critical_loss(images, examples)
        drawn = torch.rand(len(examples)).tolist()
        told = []
        for some, share in zip(examples.captions, drawn, strict=True):
            first = int(share * len(some))
            told.append((some[first:] + some[:first])[: self.captions_per_image])
        (inputs, right), memory = self.ask(list(chain(*told))), self.model.see(images)
        if max(self.captions_per_image, self.rollouts) > 1:
            of_image = [image for image, some in enumerate(told) for _ in range(len(some) * self.rollouts)]
            inputs, right = (each.repeat_interleave(self.rollouts, 0) for each in (inputs, right))
            memory = index_rows(memory, torch.tensor(of_image, device=self.device))
        said = self.model.decode(inputs, memory, need_weights=bool(self.coverage or self.map_entropy))
        losses, mean = answer_loss(said.logits, right, self.label_smoothing)
        terms = {"loss/answer": mean}
        if self.coverage and said.weights is not None:
            read = (said.weights * (right != IGNORE_INDEX)[..., None]).sum(1)
            terms["loss/coverage"] = self.coverage * (1 - read).square().mean()
        if self.map_entropy:
            maps = said.weights
            if maps is None or not _are_soft(maps):
                raise InputError("task.map_entropy is for soft attention, whose weights are shares: else set it to 0.")
            nats = entropy(maps)[right != IGNORE_INDEX].mean()
            terms["loss/map_entropy"] = self.map_entropy * self.progress * nats
        # The expected score of a choice is zero: its surprise as a reward has the gradient of the entropy.
        surprise = 0 if said.log_prob is None else self.entropy * said.log_prob.detach()
        return self.end(said, right, losses + surprise, terms, self.gamma)

    def _self_critical_loss(self, images: Tensor, examples: Captions) -> StepResult:
        """Sampled captions, paid by what they are worth more than the likeliest (Rennie et al. 2017, equation 7)."""
        self.model.eval()  # what is sampled has the probabilities that are trained
        longest = self._longest
        prefix, memory = self.model.begin(images)
        likeliest = sample(self.model, prefix, longest, memory, temperature=0)
        rows = torch.arange(len(images), device=self.device).repeat_interleave(self.rollouts)
        prefix, memory = index_rows((prefix, memory), rows)
        sampled = sample(self.model, prefix, longest, memory)
        # What was cut short did not say that it ends.
        inputs, right = (each[:, :longest] for each in teacher_forcing_batch(sampled, self.device))
        said = self.model.decode(inputs, memory)
        log_prob, scored = -cross_entropy(mask_special_tokens(said.logits), right), right != IGNORE_INDEX
        worth = self._reward(sampled, [examples.captions[row] for row in rows.tolist()])
        before = self._reward(likeliest, examples.captions)
        advantage = (worth - before[rows])[:, None].expand_as(log_prob)
        loss = policy_gradient_loss(log_prob.mT, advantage.mT, scored.mT) * len(rows) / scored.sum()

        def metrics() -> dict[str, float]:
            return {"loss/policy": loss.item(), "train/reward": worth.mean().item()}

        self.model.train()
        return StepResult(loss, metrics)

    @property
    def _longest(self) -> int:
        """How many words are sampled at most."""
        longest = self.search.max_length or _LONGEST
        return min(longest, self.model.max_length or longest)

    def _reward(self, said: Sequence[Sequence[int]], references: Sequence[Sequence[Tokens]]) -> Tensor:
        """The reward of captions, (B,). The end counts as a word, or it would pay to break off."""
        words = [tuple(self.vocabulary.decode(each)) for each in said]
        words = [each if len(each) == self._longest else (*each, _END) for each in words]
        ended = _ended(references)
        if self._cider is not None:
            worth = self._cider(words, ended)
        else:
            worth = [bleu([each], [some], True)["bleu_4"] / 100 for each, some in zip(words, ended, strict=True)]
        return torch.tensor(worth, device=self.device)

    @torch.no_grad()
    def evaluate(self, split: Split) -> dict[str, float]:
        """Measures what the model says by itself, and of right captions, word by word.

        Of the former BLEU-1 to BLEU-4 and ROUGE-L in percent, CIDEr-D, what the corpus judges, and how attention points
        to what the words name; see :func:`ram.captioning.maps.pointing`. Of the latter perplexity. On the test split
        the former is measured of a control too, ``nearest_...``: each image is described by a caption of the training
        image that the encoder finds most like it.
        """
        examples = self.split(split)
        said = [best[0] for best in self.describe(examples)]
        measured = self._judge(said, examples)
        if split == "test":
            control = self._judge(self._nearest(examples), examples)
            measured |= {f"nearest_{name}": value for name, value in control.items()}
        losses, maps = [], []
        for start in range(0, len(examples), EVALUATION_BATCH):
            batch = examples.choose(range(start, min(start + EVALUATION_BATCH, len(examples))))
            memory = self.model.see(_brightness(batch.images.to(self.device)))
            told = said[start : start + EVALUATION_BATCH]
            inputs = decoder_inputs(self.model, self.vocabulary, told, self.device)
            weights = self.model.decode(inputs, memory, need_weights=True).weights
            if weights is not None:
                maps += [some[: len(words)].cpu() for some, words in zip(weights, told, strict=True)]
            for place in range(max(map(len, batch.captions))):
                some = [number for number, captions in enumerate(batch.captions) if len(captions) > place]
                inputs, right = self.ask([batch.captions[number][place] for number in some])
                logits = self.model.decode(inputs, index_rows(memory, torch.tensor(some))).logits
                losses.append(cross_entropy(logits, right)[right != IGNORE_INDEX])
        measured["perplexity"] = float(torch.cat(losses).double().mean().exp())
        if maps:
            named = (
                [()] * len(maps)
                if examples.annotations is None
                else list(map(self.corpus.named, said, examples.annotations))
            )
            measured |= pointing(maps, self.model.encoder.grid, self.image_shape[1:], examples.boxes, named)
        return measured

    def evaluate_generation(self, split: Split, beam_size: int | None = None) -> dict[str, float]:
        """BLEU, ROUGE-L, CIDEr-D and what the corpus judges of what the model says by itself."""
        examples = self.split(split)
        return self._judge([best[0] for best in self.describe(examples, beam_size)], examples)

    def _judge(self, said: Sequence[Tokens], examples: Captions) -> dict[str, float]:
        measured: dict[str, float] = bleu(said, examples.captions)
        for name, scores in {
            "rouge_l": rouge_l(said, examples.captions),
            "cider": Cider.of(examples.captions)(said, examples.captions),
        }.items():
            measured[name] = sum(scores) / len(scores)
        return measured if examples.annotations is None else measured | self.corpus.judge(said, examples.annotations)

    def _nearest(self, examples: Captions) -> list[Tokens]:
        """The first caption of the training image whose grid has the largest cosine with that of each image."""
        train = self.split("train")
        ours, theirs = (self._grids(some.images) for some in (examples, train))
        return [train.captions[number][0] for number in (ours @ theirs.mT).argmax(1).tolist()]

    def _grids(self, images: Tensor) -> Tensor:
        """What the encoder makes of images, its average in 4 x 4 parts, of length 1."""
        encoder, grids = self.model.encoder, []
        for batch in images.split(EVALUATION_BATCH):
            grid = encoder(_brightness(batch.to(self.device))).mT.unflatten(2, encoder.grid)
            grids.append(F.normalize(F.adaptive_avg_pool2d(grid, 4).flatten(1), dim=1))
        return torch.cat(grids)

    def describe(self, examples: Captions, beam_size: int | None = None, n_best: int = 1) -> list[list[Tokens]]:
        """What the model says by itself of every image, the best first."""
        size = self.search.beam_size if beam_size is None else beam_size
        return describe(self.model, self.vocabulary, examples.images.to(self.device), self.search, size, n_best)

    @torch.no_grad()
    def pictures(self, split: Split) -> dict[str, Artifact]:
        """Some images with what is said of them, and where each word looks."""
        examples = self.split(split)
        some = examples.choose(_spread(_WRITTEN, len(examples)))
        said = [best[0] for best in self.describe(some)]
        lines = []
        for words, right in zip(said, some.captions, strict=True):
            lines += [f"said    {' '.join(words)}", *(f"right   {' '.join(each)}" for each in right), ""]
        drawn: dict[str, Artifact] = {"captions.txt": "\n".join(lines)}
        numbers = _spread(_DRAWN, len(some))
        shown, told = some.choose(numbers), [said[number] for number in numbers]
        images = _brightness(shown.images)
        inputs = decoder_inputs(self.model, self.vocabulary, told, self.device)
        weights = self.model(images.to(self.device), inputs, need_weights=True).weights
        if weights is not None:
            drawn["captions.png"] = strips(images, told, weights.cpu(), self.model.encoder.grid, self.model.sensor)
        return drawn

    def get_extra_state(self) -> dict[str, Any]:
        """What a trained model must know that no tensor holds."""
        return {"words": list(self.vocabulary.known), "image_shape": list(self.image_shape)}

    @classmethod
    def restore(cls, state: Mapping[str, Any], arguments: Mapping[str, Any]) -> ImageCaptioner:
        known = state["_extra_state"]
        vocabulary, shape = Vocabulary(known["words"]), tuple(known["image_shape"])
        model = arguments["model"](vocabulary_size=len(vocabulary), image_shape=shape)
        model.load_state_dict(part(state, "model."))
        return ImageCaptioner(
            model, vocabulary, shape, arguments["corpus"], arguments["search"] or Search(), arguments["device"]
        )


@torch.no_grad()
def describe(
    model: Captioner, vocabulary: Vocabulary, images: Tensor, search: Search, beam_size: int, n_best: int = 1
) -> list[list[Tokens]]:
    """What a model says of images (N, C, H, W), uint8 or float in [0, 1], by beam search; N times the best first."""
    found: list[list[Tokens]] = []
    for batch in images.split(EVALUATION_BATCH):
        prefix, memory = model.begin(_brightness(batch))
        longest = search.max_length or _LONGEST
        best = beam_search(model, prefix, longest, memory, beam_size, search.length_penalty, n_best)
        found += [[tuple(vocabulary.decode(each.words)) for each in some] for some in best]
    return found


def decoder_inputs(model: Captioner, vocabulary: Vocabulary, said: Sequence[Tokens], device: torch.device) -> Tensor:
    """What was said, to be read once more: (B, T) int64, with as many words as the model has positions for."""
    return teacher_forcing_batch([vocabulary.encode(words) for words in said], device)[0][:, : model.max_length]


def _are_soft(maps: Tensor) -> bool:
    """Whether weights (B, T, N) are shares that can be learnt."""
    are_learnt = maps.requires_grad or not torch.is_grad_enabled()
    return are_learnt and bool((maps >= 0).all() and (maps.sum(-1) < 1.001).all())


def _ended(references: Sequence[Sequence[Tokens]]) -> list[list[Tokens]]:
    """Captions whose end is a word."""
    return [[(*each, _END) for each in some] for some in references]


def _spread(most: int, count: int) -> list[int]:
    """At most so many of the numbers below ``count``, evenly apart: files often come class by class."""
    most = min(most, count)
    return [number * count // most for number in range(most)]


def _brightness(images: Tensor) -> Tensor:
    """Those of 8 bits as floats in [0, 1]."""
    return images.float() / 255 if images.dtype == torch.uint8 else images
