"""Captioning: the loss of a step, the metrics of evaluation, and learning."""

import io
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from envs import InputError
from envs.sensor import GlimpseSensor
from ram.attention.positions import LearnedPositions
from ram.attention.selection import AttentionWeights, Hard, Soft, Unnormalized
from ram.baselines import LeaveOneOutBaseline, MovingAverageBaseline, NoBaseline
from ram.captioning.captioner import Captioner, GlimpseContext
from ram.corpora import Captions, Tokens
from ram.corpora.reversal import Reversal
from ram.corpora.vocabulary import END, START
from ram.image_encoders import Convolutional, Pixels
from ram.inference.captions import ImageCaptioner
from ram.networks import GlimpseNetwork
from ram.policies import LocationNetwork, RandomLocation
from ram.sequence import recurrent, transformer
from ram.sequence.context import CrossAttention
from ram.sequence.embedding import TokenEmbedding
from ram.sequence.interfaces import ModelOutput
from ram.sequence.search import SPECIAL_TOKENS
from ram.tasks.caption import CaptionTask
from ram.tasks.self_critical import self_critical_loss
from ram.tasks.translate import Search

SIDES = ("left", "right")


class SquareCorpus:
    """Images of 8 x 16 with a bright square on the left or on the right, and two captions that name its side."""

    def load(self, split: str) -> Captions:
        count = {"train": 24, "validation": 6, "test": 10}[split]
        images = torch.zeros(count, 1, 8, 16, dtype=torch.uint8)
        captions, boxes = [], torch.zeros(count, 1, 4)
        for index in range(count):
            side, row = index % 2, index // 2 % 3
            left, top = 1 + 9 * side, 1 + 2 * row
            images[index, 0, top : top + 3, left : left + 4] = 255
            boxes[index, 0] = torch.tensor([left, top, left + 3, top + 2])
            captions.append((("it", "is", SIDES[side]), (SIDES[side],)))
        return Captions(images, tuple(captions), boxes, tuple(range(count)))

    def evaluate(self, captions: Sequence[Tokens], annotations: Sequence[int]) -> dict[str, float]:
        correct = [SIDES[index % 2] in caption for caption, index in zip(captions, annotations, strict=True)]
        return {"correct": 100 * sum(correct) / len(correct)}

    def mentioned_objects(self, caption: Tokens, index: int) -> list[tuple[int, ...]]:
        return [(0,) if word == SIDES[index % 2] else () for word in caption]

    def tokenize(self, text: str) -> Tokens:
        return tuple(text.split())

    def detokenize(self, words: Sequence[str]) -> str:
        return " ".join(words)


convolutional = partial(Convolutional, widths=(8, 8))
soft = partial(recurrent.RecurrentDecoder, size=16, bridge="none", input_feeding=False, context=CrossAttention)
hard = partial(soft, context=partial(CrossAttention, select=Hard))
glimpses = partial(
    GlimpseContext,
    sensor=GlimpseSensor(8),
    glimpse=partial(GlimpseNetwork, patch_features=16, location_features=16, output_size=16),
    policy=partial(LocationNetwork, std=0.5),
)
glimpse = partial(recurrent.RecurrentDecoder, size=16, bridge="none", attend="before", context=glimpses)
MODELS: dict[str, dict[str, Any]] = {
    "soft": {"decoder": soft},
    "hard": {"decoder": hard},
    "glimpse": {"decoder": glimpse, "image_encoder": Pixels},
    "no attention": {"decoder": partial(recurrent.RecurrentDecoder, size=8, bridge="none")},
    "transformer": {"decoder": partial(transformer.TransformerDecoder, size=8, num_heads=2, num_layers=1, dropout=0.0)},
}


POINTING = {"pointing", "pointing_center", "pointing_shuffled", "mass_in_box"}


def build(name: str = "soft", baseline: Any = NoBaseline, **options: Any) -> CaptionTask:
    parts = {"image_encoder": convolutional, "embedding": partial(TokenEmbedding, size=8), **MODELS[name]}
    parts |= {key: options.pop(key) for key in ("image_encoder", "decoder", "dropout") if key in options}
    return CaptionTask(
        options.pop("corpus", SquareCorpus()), partial(Captioner, **parts), baseline, batch_size=8, **options
    )


def train(task: CaptionTask, steps: range, optimizer: torch.optim.Optimizer) -> list[float]:
    losses = []
    for step in steps:
        result = task.train()(step)
        optimizer.zero_grad()
        result.loss.backward()
        optimizer.step()
        losses.append(result.loss.item())
    return losses


def test_inputs_are_shifted_by_the_start_symbol_and_targets_end_with_the_end_symbol() -> None:
    task = build()
    it, is_, left = task.vocabulary.encode(["it", "is", "left"])
    inputs, targets = task.teacher_forcing([("it", "is", "left"), ("left",)])
    assert inputs.tolist() == [[START, it, is_, left], [START, left, 0, 0]]
    assert targets.tolist() == [[it, is_, left, END], [left, END, -100, -100]]


def record_captions(task: CaptionTask) -> list[Sequence[Tokens]]:
    """Returns a list that receives the captions of every training step."""
    recorded: list[Sequence[Tokens]] = []
    original = task.teacher_forcing

    def recording(captions: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
        recorded.append(captions)
        return original(captions)

    task.teacher_forcing = recording  # type: ignore[method-assign]
    return recorded


def test_a_step_draws_one_caption_of_every_image_as_a_function_of_seed_and_step() -> None:
    task = build()
    first, repeated, other = (task(step).loss.item() for step in (3, 3, 4))
    assert first == repeated != other
    assert task.steps_per_epoch == 3 and task.unit == "images"
    recorded = record_captions(task)
    for step in range(30):
        task(step)
    lengths = [len(caption) for captions in recorded for caption in captions]
    assert 0.4 < lengths.count(3) / len(lengths) < 0.6


def test_batches_mix_captions_of_different_lengths() -> None:
    class Uneven(SquareCorpus):
        def load(self, split: str) -> Captions:
            examples = super().load(split)
            captions = tuple(((SIDES[index % 2],) * (1 + 4 * (index % 2)),) for index in range(len(examples)))
            return Captions(examples.images, captions, examples.boxes, examples.annotations)

    task = build(corpus=Uneven())
    for step in range(6):
        assert len({len(captions[0]) for captions in task.training_batch(step).captions}) == 2


def first_step_maps(task: CaptionTask) -> tuple[list[Tokens], Tensor]:
    """Returns the captions of the first step and the attention weights of their words."""
    examples = task.training_batch(0)
    drawn = torch.rand(len(examples)).tolist()
    captions = [each[int(2 * share)] for each, share in zip(examples.captions, drawn, strict=True)]
    weights = task.model(examples.images.float() / 255, task.teacher_forcing(captions)[0]).weights
    assert weights is not None
    return captions, weights


def test_coverage_penalizes_cells_whose_weights_do_not_sum_to_one() -> None:
    task, plain = build(coverage=0.5), build()
    metrics = task(0).metrics()
    assert metrics["loss/answer"] == pytest.approx(plain(0).metrics()["loss/answer"], rel=1e-6)
    captions, weights = first_step_maps(task)
    totals = [sum(weights[row, step] for step in range(len(caption) + 1)) for row, caption in enumerate(captions)]
    expected = 0.5 * torch.stack([(1 - total).square().mean() for total in totals]).mean()  # type: ignore[arg-type, operator]
    assert metrics["loss/coverage"] == pytest.approx(expected.item(), rel=1e-5)


def test_the_weight_of_the_map_entropy_grows_with_progress() -> None:
    task, plain = build(map_entropy=0.5), build()
    task.progress = 0.4
    step = task(0)
    metrics = step.metrics()
    assert metrics["loss/answer"] == pytest.approx(plain(0).metrics()["loss/answer"], rel=1e-6)
    captions, weights = first_step_maps(task)
    words = [each for row, caption in zip(weights, captions, strict=True) for each in row[: len(caption) + 1]]
    nats = [-sum(share * math.log(share) for share in word.tolist()) for word in words]
    assert metrics["loss/map_entropy"] == pytest.approx(0.5 * 0.4 * sum(nats) / len(nats), rel=1e-5)
    with torch.no_grad():  # as when batch statistics of averaged weights are computed
        assert task(0).loss.item() == pytest.approx(step.loss.item(), rel=1e-6)


@pytest.mark.parametrize("model", ["hard", "glimpse", "no attention", "unnormalized", "sums of 2"])
def test_map_entropy_is_refused_without_soft_attention(model: str) -> None:
    class Twice(Soft):
        def forward(self, *scores: Any) -> AttentionWeights:
            return AttentionWeights(2 * super().forward(*scores).weights)

    selects = {"unnormalized": Unnormalized, "sums of 2": Twice}
    parts = (
        {"decoder": partial(soft, context=partial(CrossAttention, select=selects[model]))} if model in selects else {}
    )
    task = build("soft" if parts else model, map_entropy=0.5, **parts)
    with pytest.raises(
        InputError, match=r"^task\.map_entropy needs soft attention with normalized weights: set it to 0\.$"
    ):
        task(0)


class Several(SquareCorpus):
    """One to four captions per image of different lengths, whose first word identifies the image."""

    def load(self, split: str) -> Captions:
        examples = super().load(split)
        names = ("red", "blue", "green", "grey", "black", "white", "brown", "pink")
        captions = tuple(
            tuple((names[image % 8], *["and"] * extra) for extra in range(1 + image % 4))
            for image in range(len(examples))
        )
        return Captions(examples.images, captions, examples.boxes, examples.annotations)


@pytest.mark.parametrize(("captions", "rollouts"), [(1, 1), (1, 3), (3, 1), (3, 3), (9, 2)])
def test_an_image_is_encoded_once_for_all_its_captions_and_rollouts(captions: int, rollouts: int) -> None:
    task = build("hard", corpus=Several(), captions_per_image=captions, rollouts_per_image=rollouts)
    grids: list[Tensor] = []
    decoder_calls: list[Any] = []
    task.model.image_encoder.register_forward_hook(lambda module, arguments, output: grids.append(output))
    task.model.decoder.register_forward_hook(lambda module, arguments, output: decoder_calls.append(arguments))
    recorded = record_captions(task)
    task(0)
    examples = task.training_batch(0)
    ((drawn,), (grid,), ((vectors, memory, *_),)) = recorded, grids, decoder_calls
    rows = [image for image, references in enumerate(examples.captions) for _ in references[:captions]]
    assert [len(references) for references in examples.captions] != [1] * 8
    for image, references in enumerate(examples.captions):
        own = [caption for row, caption in zip(rows, drawn, strict=True) if row == image]
        assert len(set(own)) == len(own) == min(captions, len(references)) and set(own) <= set(references)
    expected = torch.stack([grid[image] for image in rows for _ in range(rollouts)])
    torch.testing.assert_close(memory.states, expected)
    expected = task.model.embedding(task.teacher_forcing(drawn)[0].repeat_interleave(rollouts, dim=0))
    torch.testing.assert_close(vectors, expected)


def test_the_loss_is_the_mean_over_all_words_of_the_step() -> None:
    task = build(captions_per_image=2)
    loss, examples = task(0).loss, task.training_batch(0)
    log_prob, count = torch.tensor(0.0), 0
    for index in range(2):  # both captions of every image
        inputs, targets = task.teacher_forcing([captions[index] for captions in examples.captions])
        logits = task.model(examples.images.float() / 255, inputs).logits
        log_probs = logits.log_softmax(-1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
        log_prob, count = log_prob + log_probs[targets >= 0].sum(), count + int((targets >= 0).sum())
    assert loss.item() == pytest.approx(-log_prob.item() / count, rel=1e-5)


def test_rollouts_of_one_image_are_adjacent_and_differ_in_their_choices() -> None:
    seen: list[Any] = []

    class Recording(LeaveOneOutBaseline):
        def forward(self, rollout: Any, returns: Tensor) -> Any:
            seen.append(rollout)
            return super().forward(rollout, returns)

    build("hard", Recording, rollouts_per_image=3)(0)
    assert seen[0].group.tolist() == [row // 3 for row in range(24)]
    assert seen[0].log_prob.shape[1] == 24
    first = seen[0].log_prob[0].view(8, 3)  # before the first word the state of all rows of an image is equal
    assert (first.std(1) > 0).any()
    one, several = build()(0), build(rollouts_per_image=3)(0)
    assert several.loss.item() == pytest.approx(one.loss.item(), rel=1e-5)
    with pytest.raises(InputError, match=r"task\.rollouts_per_image"):
        build("hard", LeaveOneOutBaseline)


def test_the_log_probability_given_a_patch_rewards_its_location_without_discount() -> None:
    returns: list[Tensor] = []

    class Recording(NoBaseline):
        def forward(self, rollout: Any, values: Tensor) -> Any:
            returns.append(values)
            return super().forward(rollout, values)

    plain, task = (build("glimpse", Recording, patch_reward=weight, gamma=0.7) for weight in (0.0, 0.5))
    task.patch_classifier.logits.bias.data.copy_(torch.arange(len(task.vocabulary)) * 2.0)  # some are below -4
    patches: list[Tensor] = []
    decoder = task.model.decoder
    decoder.register_forward_hook(lambda module, arguments, output: patches.append(output.patch_features))
    loss, result = plain(0).loss, task(0)
    _, targets = task.teacher_forcing([drawn for (drawn,) in task._draw_captions(task.training_batch(0), 0)])
    mask = targets >= 0
    log_prob = task.patch_classifier.logits(patches[0][mask]).log_softmax(-1).gather(-1, targets[mask][:, None])[:, 0]
    assert (log_prob < -4).any() and (log_prob > -4).any()
    expected = torch.zeros(targets.shape).masked_scatter(mask, 0.5 * log_prob.clamp(min=-4))
    torch.testing.assert_close((returns[1] - returns[0]).mT, expected, atol=1e-5, rtol=0)
    metrics = result.metrics()
    assert metrics["loss/patch"] == pytest.approx(-log_prob.mean().item(), rel=1e-5)
    difference = metrics["loss/patch"] + metrics["loss/policy"] - plain(0).metrics()["loss/policy"]
    assert (result.loss - loss).item() == pytest.approx(difference, rel=1e-4)


def test_the_patch_reward_needs_glimpses_and_cross_entropy() -> None:
    with pytest.raises(InputError, match=r"^task\.patch_reward needs glimpses: set decoder=glimpse"):
        build("hard", patch_reward=1.0)
    with pytest.raises(InputError, match=r"^task\.reward=cider trains the tokens only: set task\.patch_reward=0\.$"):
        build("glimpse", patch_reward=1.0, reward="cider")


def test_the_entropy_bonus_is_part_of_the_reward_and_not_of_the_cross_entropy() -> None:
    rewards: list[Tensor] = []
    log_probs: list[Tensor] = []

    class Recording(NoBaseline):
        def forward(self, rollout: Any, returns: Tensor) -> Any:
            rewards.append(rollout.reward)
            log_probs.append(torch.where(rollout.mask, rollout.log_prob, 0).detach())
            return super().forward(rollout, returns)

    plain, curious = build("hard", Recording)(0), build("hard", Recording, entropy=0.5)(0)
    assert plain.metrics()["loss/answer"] == curious.metrics()["loss/answer"]
    bonus = rewards[1] - rewards[0]
    torch.testing.assert_close(bonus, -0.5 * log_probs[0], atol=1e-6, rtol=1e-5)
    assert bonus.max() > 0.1
    assert build("hard", entropy=0.5)(0).metrics()["loss/policy"] != plain.metrics()["loss/policy"]


@pytest.mark.parametrize("name", MODELS)
def test_evaluation_returns_every_metric(name: str) -> None:
    metrics = build(name).eval().evaluate("test")
    generation = {"bleu_1", "bleu_2", "bleu_3", "bleu_4", "rouge_l", "cider", "correct"}
    required = generation | {"perplexity"} | {f"nearest_{each}" for each in generation}
    # The metrics of maps depend on the generated words.
    optional = set() if name == "no attention" else {"map_entropy", "map_change", *POINTING}
    assert required <= metrics.keys() <= required | optional
    assert metrics["nearest_correct"] == 100  # every test image is also a training image
    validation = build(name).eval().evaluate("validation")
    assert validation.keys() == {each for each in metrics if not each.startswith("nearest_")}
    assert all(map(math.isfinite, metrics.values()))


def test_the_perplexity_is_that_of_all_words_of_all_references() -> None:
    task = build().eval()
    examples = task.split("validation")
    log_probs = []
    for index, captions in enumerate(examples.captions):
        for caption in captions:
            inputs, targets = task.teacher_forcing([caption])
            logits = task.model(examples.images[index : index + 1].float() / 255, inputs).logits
            log_probs.append(logits.log_softmax(-1)[0].gather(-1, targets[0, :, None]))
    expected = math.exp(-torch.cat(log_probs).double().mean().item())
    assert task.evaluate("validation")["perplexity"] == pytest.approx(expected, rel=1e-5)


def test_metrics_do_not_depend_on_the_evaluation_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    task = build().eval()
    metrics = task.evaluate("test")
    for module in ("tasks.caption", "inference.captions"):
        monkeypatch.setattr(f"ram.{module}.EVALUATION_BATCH_SIZE", 3)
    assert task.evaluate("test") == pytest.approx(metrics, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "steps", "baseline", "rollouts"),
    [
        ("soft", 60, NoBaseline, 1),
        ("hard", 150, MovingAverageBaseline, 1),
        ("hard", 100, LeaveOneOutBaseline, 3),
        ("glimpse", 150, NoBaseline, 1),
    ],
)
def test_training_learns_the_side_of_the_square(name: str, steps: int, baseline: Any, rollouts: int) -> None:
    task = build(name, baseline, rollouts_per_image=rollouts)
    train(task, range(steps), torch.optim.Adam(task.parameters(), 0.02))
    metrics = task.eval().evaluate("test")
    assert metrics["correct"] == 100
    assert metrics["bleu_1"] > 99
    assert metrics.keys() >= {"map_entropy", *POINTING}


def test_self_critical_training_increases_the_reward() -> None:
    pretrained, task = build(), build(reward="cider")
    train(pretrained, range(20), torch.optim.Adam(pretrained.parameters(), 0.005))
    task.load_state_dict(pretrained.state_dict())
    before = task.eval().evaluate("test")
    losses = train(task, range(20, 110), torch.optim.Adam(task.parameters(), 0.005))
    assert all(map(math.isfinite, losses))
    after = task.eval().evaluate("test")
    assert after["cider"] > before["cider"] + 1
    assert after["correct"] > before["correct"]


def test_a_reward_replaces_the_cross_entropy() -> None:
    task = build(reward="bleu").train()
    assert task(0).metrics().keys() == {"loss/policy", "train/reward"}
    assert task.training and task.model.training


@pytest.mark.parametrize("name", ["soft", "hard", "glimpse"])
def test_resumed_training_equals_uninterrupted_training(name: str) -> None:
    def start() -> tuple[CaptionTask, torch.optim.Optimizer]:
        task = build(name, MovingAverageBaseline, seed=5, dropout=0.2)
        return task, torch.optim.Adam(task.parameters(), 0.01)

    task, optimizer = start()
    expected = train(task, range(8), optimizer)
    first, first_optimizer = start()
    prefix = train(first, range(4), first_optimizer)
    second, second_optimizer = start()
    second.load_state_dict(first.state_dict())
    second_optimizer.load_state_dict(first_optimizer.state_dict())
    assert prefix + train(second, range(4, 8), second_optimizer) == expected


def test_a_restored_captioner_equals_the_trained_model_and_needs_no_data() -> None:
    class WithoutData(SquareCorpus):
        def load(self, split: str) -> Captions:
            raise AssertionError("Restoring must not load the data.")

    task = build("soft", seed=3).eval()
    file = io.BytesIO()
    torch.save(task.state_dict(), file)
    file.seek(0)
    parts = {"image_encoder": convolutional, "embedding": partial(TokenEmbedding, size=8), **MODELS["soft"]}
    arguments = {"model": partial(Captioner, **parts), "corpus": WithoutData(), "search": None, "device": "cpu"}
    model = CaptionTask.restore(torch.load(file, weights_only=True), arguments)
    assert isinstance(model, ImageCaptioner) and not model.model.training
    examples = task.split("test")
    expected = [" ".join(caption) for caption in task.generate(examples)]
    assert model.caption(examples.images) == model.caption(examples.images.float() / 255) == expected
    captions, weights = model.caption_with_weights(examples.images)
    assert [" ".join(caption) for caption in captions] == expected
    longest = max(map(len, captions))
    assert weights is not None and weights.shape == (10, longest + 1, 2 * 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(10, longest + 1))
    several = model.n_best(examples.images, 3)
    assert all(1 <= len(each) <= 3 and len(set(each)) == len(each) for each in several)
    assert model.sample(examples.images, temperature=0) == expected
    sampled, repeated, other = (model.sample(examples.images, 2.0, top_p=0.95, seed=seed) for seed in (0, 0, 1))
    assert sampled == repeated != other
    assert model.caption(examples.images.numpy()) == expected
    for images, message in [
        (torch.zeros(2, 3, 8, 16), r"^Images must be \(N, 1, 8, 16\) with N of at least 1, got \(2, 3, 8, 16\)\.$"),
        (torch.zeros(0, 1, 8, 16), r"with N of at least 1, got \(0, 1, 8, 16\)\.$"),
        (torch.zeros(2, 1, 8, 16, dtype=torch.int64), r"images must be uint8, or floating point .*, got .* int64"),
        (torch.full((2, 1, 8, 16), 200.0), r"images must be in \[0, 1\] .* from 200 to 200: divide"),
    ]:
        with pytest.raises(InputError, match=message):
            model.caption(images)


def test_pictures_are_captions_and_attention_maps() -> None:
    task = build().eval()
    pictures = task.pictures("test")
    assert pictures.keys() == {"captions.txt", "captions.png"}
    strip = pictures["captions.png"]
    assert isinstance(strip, np.ndarray) and strip.dtype == np.uint8 and strip.ndim == 3 and strip.std() > 5
    assert str(pictures["captions.txt"]).count("reference  it is") == 10
    assert build("no attention").eval().pictures("test").keys() == {"captions.txt"}
    assert build("glimpse").model.sensor is not None and task.model.sensor is None
    assert build("glimpse").eval().pictures("test").keys() == pictures.keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_smoothing": 1.0}, r"^task\.label_smoothing must be in \[0, 1\)"),
        ({"reward": "spice"}, r"^task\.reward must be null or one of cider, bleu, got 'spice'\.$"),
        ({"gamma": 2.0}, r"^task\.gamma must be in \[0, 1\], got 2\.0\.$"),
        ({"coverage": -1.0}, r"^task\.coverage must be a number of at least 0, got -1\.0\.$"),
        ({"map_entropy": math.nan}, r"^task\.map_entropy must be a number of at least 0, got nan\.$"),
        (
            {"monitor": "exact"},
            r"^task\.monitor must be cider, bleu_4, .*; got 'exact'",
        ),
        ({"min_count": 1000}, r"^No word occurs task\.min_count=1000 times: lower it\.$"),
        ({"search": Search(beam_size=2), "min_count": 0}, r"^task\.min_count must be at least 1, got 0\.$"),
    ],
)
def test_invalid_options_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(**options)


class BigramModel(torch.nn.Module):
    """Generates words whose logits depend on the previous word alone and are the parameters."""

    max_length = None

    def __init__(self, size: int) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.randn(size, size, generator=torch.Generator().manual_seed(1)))

    def start_decoding(self, images: Tensor) -> tuple[Tensor, None]:
        return torch.full((len(images), 1), START), None

    def decode(self, token_ids: Tensor, memory: Any, state: Any = None, need_weights: bool = False) -> ModelOutput:
        return ModelOutput(self.logits[token_ids], self.logits[token_ids])


def test_the_self_critical_gradient_is_that_of_the_expected_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    task = build(reward="bleu", rollouts_per_image=4000, search=Search(max_length=2))
    model = task.model = BigramModel(len(task.vocabulary))
    examples = task.split("train").select([0])

    def reward(captions: Sequence[Sequence[int]], references: Any) -> Tensor:
        return torch.tensor([float(len(caption)) + sum(caption) ** 2 / 50 for caption in captions])

    monkeypatch.setattr(task, "_caption_reward", reward)
    torch.manual_seed(0)
    torch.stack([task._self_critical_step(examples.images, examples).loss for _ in range(10)]).mean().backward()
    estimated, model.logits.grad = model.logits.grad, None

    words = [token_id for token_id in range(len(task.vocabulary)) if token_id not in SPECIAL_TOKENS]
    probabilities = torch.full_like(model.logits, -math.inf)
    probabilities[:, words] = model.logits[:, words]
    probabilities = probabilities.softmax(-1)
    expected, length = torch.zeros(()), torch.zeros(())
    for first in words:
        for second in words if first != END else [END]:
            probability = probabilities[START, first] * (1.0 if first == END else probabilities[first, second])
            caption = [token_id for token_id in (first, second) if token_id != END]
            expected = expected - probability * reward([caption], None)[0]
            length = length + probability.detach() * (1 if first == END else 2)
    (expected / length).backward()
    torch.testing.assert_close(estimated, model.logits.grad, atol=0.02, rtol=0.05)


def test_the_self_critical_loss_by_hand() -> None:
    """Two captions of one and two tokens, with advantages 0.5 and -1, over three tokens."""
    logits = torch.randn(2, 2, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    targets = torch.tensor([[END, -100], [4, END]])
    loss = self_critical_loss(
        ModelOutput(logits, logits.detach()),
        targets,
        torch.tensor([2.0, 1.0]),
        torch.tensor([1.5, 2.0]),
        torch.zeros(2),
    )
    masked = logits.detach().clone()
    masked[..., SPECIAL_TOKENS] = -math.inf
    log_prob = masked.log_softmax(-1)
    expected = -(0.5 * log_prob[0, 0, END] - log_prob[1, 0, 4] - log_prob[1, 1, END]) / 3
    torch.testing.assert_close(loss, expected)


def test_captions_are_limited_to_the_positions_of_the_model() -> None:
    few = partial(MODELS["transformer"]["decoder"], positions=partial(LearnedPositions, max_length=4))
    task = build(decoder=few, reward="bleu")
    assert "cider" in task.eval().evaluate("validation") and task.pictures("validation")
    assert max(map(len, task.generate(task.split("test")))) <= 4
    assert task(0).loss.isfinite()
    with pytest.raises(InputError, match="in the train split has 3 tokens, but the model has 2 positions"):
        build(decoder=partial(few, positions=partial(LearnedPositions, max_length=3)))


def test_the_evaluation_of_a_random_policy_is_reproducible() -> None:
    random = partial(glimpse, context=partial(glimpses, policy=RandomLocation))
    task = build("glimpse", decoder=random).eval()
    first = task.evaluate("validation")
    torch.manual_seed(7)
    assert task.evaluate("validation") == first
    assert first["map_change"] > 0, "the location changes from word to word"


def test_unnormalized_weights_have_no_map_entropy() -> None:
    task = build(decoder=partial(soft, context=partial(CrossAttention, select=Unnormalized))).eval()
    metrics = task.evaluate("validation")
    assert "map_entropy" not in metrics and all(map(math.isfinite, metrics.values()))
    assert task.pictures("validation")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"decoder": glimpse}, "decoder=glimpse needs the pixels of the image: set image_encoder=pixels."),
        (
            {"image_encoder": partial(recurrent.RecurrentEncoder, size=8)},
            "image_encoder must be one of conf/image_encoder, such as convolutional, got RecurrentEncoder.",
        ),
        ({"augmentation": "warp"}, "task.augmentation must be null or have a _target_, got 'warp'."),
        (
            {"corpus": Reversal(size=10)},
            "This task needs a corpus of images with captions: choose another corpus or task.",
        ),
    ],
)
def test_incompatible_parts_are_refused(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        build(**parts)
    assert str(error.value) == message
