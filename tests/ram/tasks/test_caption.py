"""The task of captions: what a step asks and pays, what is measured, and that it learns."""

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
from ram.attention.selection import AttentionWeights, Hard, Soft, Unnormalised
from ram.baselines import LeaveOneOutBaseline, MovingAverageBaseline, NoBaseline
from ram.captioning.captioner import Captioner, GlimpseContext
from ram.captioning.image_encoders import Convolutional, Pixels
from ram.corpora import Tokens
from ram.corpora.captions import Captions
from ram.corpora.reversal import Reversal
from ram.corpora.vocabulary import END, START
from ram.networks import GlimpseNetwork, LocationNetwork, RandomLocation
from ram.sequence import decoders, encoders
from ram.sequence.classifiers import ModelOutput, TokenEmbedding
from ram.sequence.decoders import CrossAttention
from ram.sequence.search import SPECIAL_TOKENS
from ram.tasks.caption import CaptionTask, ImageCaptioner
from ram.tasks.translate import Search

PLACES = ("left", "right")


class Given:
    """Images of 8 x 16 with a bright square on the left or on the right, and its place said in two ways."""

    def load(self, split: str) -> Captions:
        count = {"train": 24, "validation": 6, "test": 10}[split]
        images = torch.zeros(count, 1, 8, 16, dtype=torch.uint8)
        captions, boxes = [], torch.zeros(count, 1, 4)
        for number in range(count):
            side, row = number % 2, number // 2 % 3
            left, top = 1 + 9 * side, 1 + 2 * row
            images[number, 0, top : top + 3, left : left + 4] = 255
            boxes[number, 0] = torch.tensor([left, top, left + 3, top + 2])
            captions.append((("it", "is", PLACES[side]), (PLACES[side],)))
        return Captions(images, tuple(captions), boxes, tuple(range(count)))

    def judge(self, said: Sequence[Tokens], annotations: Sequence[int]) -> dict[str, float]:
        right = [PLACES[number % 2] in each for each, number in zip(said, annotations, strict=True)]
        return {"right": 100 * sum(right) / len(right)}

    def named(self, caption: Tokens, fact: int) -> list[tuple[int, ...]]:
        return [(0,) if word == PLACES[fact % 2] else () for word in caption]

    def tokenize(self, text: str) -> Tokens:
        return tuple(text.split())

    def detokenize(self, words: Sequence[str]) -> str:
        return " ".join(words)


convolutional = partial(Convolutional, widths=(8, 8))
soft = partial(decoders.RecurrentDecoder, size=16, bridge="none", input_feeding=False, context=CrossAttention)
hard = partial(soft, context=partial(CrossAttention, select=Hard))
looks = partial(
    GlimpseContext,
    sensor=GlimpseSensor(8),
    glimpse=partial(GlimpseNetwork, patch_features=16, location_features=16, output_size=16),
    policy=partial(LocationNetwork, std=0.5),
)
glimpse = partial(decoders.RecurrentDecoder, size=16, bridge="none", attend="before", context=looks)
MODELS: dict[str, dict[str, Any]] = {
    "soft": {"decoder": soft},
    "hard": {"decoder": hard},
    "glimpse": {"decoder": glimpse, "encoder": Pixels},
    "blind": {"decoder": partial(decoders.RecurrentDecoder, size=8, bridge="none")},
    "transformer": {"decoder": partial(decoders.TransformerDecoder, size=8, num_heads=2, num_layers=1, dropout=0.0)},
}


POINTING = {"pointing", "pointing_centre", "pointing_shuffled", "mass_in_box"}


def build(name: str = "soft", baseline: Any = NoBaseline, **options: Any) -> CaptionTask:
    parts = {"encoder": convolutional, "embedding": partial(TokenEmbedding, size=8), **MODELS[name]}
    parts |= {key: options.pop(key) for key in ("encoder", "decoder", "dropout") if key in options}
    return CaptionTask(options.pop("corpus", Given()), partial(Captioner, **parts), baseline, batch_size=8, **options)


def train(task: CaptionTask, steps: range, optimizer: torch.optim.Optimizer) -> list[float]:
    losses = []
    for step in steps:
        result = task.train()(step)
        optimizer.zero_grad()
        result.loss.backward()
        optimizer.step()
        losses.append(result.loss.item())
    return losses


def test_a_caption_is_asked_for_word_by_word_with_its_end() -> None:
    task = build()
    it, there, left = task.vocabulary.encode(["it", "is", "left"])
    inputs, right = task.ask([("it", "is", "left"), ("left",)])
    assert inputs.tolist() == [[START, it, there, left], [START, left, 0, 0]]
    assert right.tolist() == [[it, there, left, END], [left, END, -100, -100]]


def test_a_step_shows_every_image_with_one_of_its_captions() -> None:
    task = build()
    seen: list[int] = []
    ask = task.ask

    def watched(captions: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
        seen.extend(map(len, captions))
        return ask(captions)

    task.ask = watched  # type: ignore[method-assign]
    first, again, other = (task(step).loss.item() for step in (3, 3, 4))
    assert first == again != other
    assert task.steps_per_epoch == 3 and task.unit == "images"
    for step in range(30):
        task(step)
    assert 0.4 < seen.count(3) / len(seen) < 0.6


def test_a_batch_does_not_tell_how_long_its_captions_are() -> None:
    class Uneven(Given):
        def load(self, split: str) -> Captions:
            given = super().load(split)
            captions = tuple(((PLACES[number % 2],) * (1 + 4 * (number % 2)),) for number in range(len(given)))
            return Captions(given.images, captions, given.boxes, given.annotations)

    parts = {"encoder": convolutional, "embedding": partial(TokenEmbedding, size=8), **MODELS["soft"]}
    task = CaptionTask(Uneven(), partial(Captioner, **parts), NoBaseline, batch_size=8)
    for step in range(6):
        assert len({len(captions[0]) for captions in task.begin(step).captions}) == 2


def first_maps(task: CaptionTask) -> tuple[list[Tokens], Tensor]:
    """The captions of the first step, and the weights of their words."""
    examples = task.begin(0)
    drawn = torch.rand(len(examples)).tolist()
    captions = [some[int(2 * share)] for some, share in zip(examples.captions, drawn, strict=True)]
    weights = task.model(examples.images.float() / 255, task.ask(captions)[0]).weights
    assert weights is not None
    return captions, weights


def test_places_that_are_not_read_once_cost() -> None:
    task, plain = build(coverage=0.5), build()
    metrics = task(0).metrics()
    assert metrics["loss/answer"] == pytest.approx(plain(0).metrics()["loss/answer"], rel=1e-6)
    captions, weights = first_maps(task)
    read = [sum(weights[row, step] for step in range(len(caption) + 1)) for row, caption in enumerate(captions)]
    expected = 0.5 * torch.stack([(1 - each).square().mean() for each in read]).mean()  # type: ignore[arg-type, operator]
    assert metrics["loss/coverage"] == pytest.approx(expected.item(), rel=1e-5)


def test_maps_of_much_entropy_cost_more_and_more() -> None:
    task, plain = build(map_entropy=0.5), build()
    task.progress = 0.4
    step = task(0)
    metrics = step.metrics()
    assert metrics["loss/answer"] == pytest.approx(plain(0).metrics()["loss/answer"], rel=1e-6)
    captions, weights = first_maps(task)
    words = [each for row, caption in zip(weights, captions, strict=True) for each in row[: len(caption) + 1]]
    nats = [-sum(share * math.log(share) for share in word.tolist()) for word in words]
    assert metrics["loss/map_entropy"] == pytest.approx(0.5 * 0.4 * sum(nats) / len(nats), rel=1e-5)
    with torch.no_grad():  # as where statistics are gathered for averaged weights
        assert task(0).loss.item() == pytest.approx(step.loss.item(), rel=1e-6)


@pytest.mark.parametrize("model", ["hard", "glimpse", "blind", "unnormalised", "sums of 2"])
def test_map_entropy_is_refused_where_no_maps_are_soft(model: str) -> None:
    class Twice(Soft):
        def forward(self, *scores: Any) -> AttentionWeights:
            return AttentionWeights(2 * super().forward(*scores).weights)

    selects = {"unnormalised": Unnormalised, "sums of 2": Twice}
    parts = (
        {"decoder": partial(soft, context=partial(CrossAttention, select=selects[model]))} if model in selects else {}
    )
    task = build("soft" if parts else model, map_entropy=0.5, **parts)
    with pytest.raises(InputError, match=r"^task\.map_entropy is for soft attention, whose weights are shares"):
        task(0)


class Several(Given):
    """From one to four captions an image, each told by its number of words; the first word tells the image."""

    def load(self, split: str) -> Captions:
        given = super().load(split)
        names = ("red", "blue", "green", "grey", "black", "white", "brown", "pink")
        captions = tuple(
            tuple((names[image % 8], *["and"] * place) for place in range(1 + image % 4)) for image in range(len(given))
        )
        return Captions(given.images, captions, given.boxes, given.annotations)


@pytest.mark.parametrize(("captions", "rollouts"), [(1, 1), (1, 3), (3, 1), (3, 3), (9, 2)])
def test_an_image_is_seen_once_for_captions_of_its_own(captions: int, rollouts: int) -> None:
    task = build("hard", corpus=Several(), captions_per_image=captions, rollouts_per_image=rollouts)
    seen, told = [], []
    task.model.encoder.register_forward_hook(lambda _, given, made: seen.append(made))
    task.model.decoder.register_forward_hook(lambda _, given, __: told.append(given))
    asked: list[Sequence[Tokens]] = []
    ask = task.ask
    task.ask = lambda words: (asked.append(words), ask(words))[1]  # type: ignore[method-assign, func-returns-value]
    task(0)
    examples = task.begin(0)
    ((said,), (grids,), ((vectors, memory, *_),)) = asked, seen, told
    rows = [image for image, some in enumerate(examples.captions) for _ in some[:captions]]
    assert [len(some) for some in examples.captions] != [1] * 8
    for image, some in enumerate(examples.captions):
        ours = [caption for row, caption in zip(rows, said, strict=True) if row == image]
        assert len(set(ours)) == len(ours) == min(captions, len(some)) and set(ours) <= set(some)
    expected = torch.stack([grids[image] for image in rows for _ in range(rollouts)])
    torch.testing.assert_close(memory.states, expected)
    expected = task.model.embedding(ask(said)[0].repeat_interleave(rollouts, dim=0))
    torch.testing.assert_close(vectors, expected)


def test_the_loss_is_the_mean_over_all_words_that_are_said() -> None:
    task = build(captions_per_image=2)
    loss, examples = task(0).loss, task.begin(0)
    log_prob, words = torch.tensor(0.0), 0
    for place in range(2):  # which an image has
        inputs, right = task.ask([some[place] for some in examples.captions])
        logits = task.model(examples.images.float() / 255, inputs).logits
        of_right = logits.log_softmax(-1).gather(-1, right.clamp(min=0)[..., None])[..., 0]
        log_prob, words = log_prob + of_right[right >= 0].sum(), words + int((right >= 0).sum())
    assert loss.item() == pytest.approx(-log_prob.item() / words, rel=1e-5)


def test_rollouts_of_one_image_stand_side_by_side_and_differ_in_their_choices() -> None:
    seen: list[Any] = []

    class Watching(LeaveOneOutBaseline):
        def forward(self, rollout: Any, returns: Tensor) -> Any:
            seen.append(rollout)
            return super().forward(rollout, returns)

    build("hard", Watching, rollouts_per_image=3)(0)
    assert seen[0].group.tolist() == [row // 3 for row in range(24)]
    assert seen[0].log_prob.shape[1] == 24
    first = seen[0].log_prob[0].view(8, 3)  # before the first word all rows of an image stand alike
    assert (first.std(1) > 0).any()
    one, several = build()(0), build(rollouts_per_image=3)(0)
    assert several.loss.item() == pytest.approx(one.loss.item(), rel=1e-5)
    with pytest.raises(InputError, match=r"task\.rollouts_per_image"):
        build("hard", LeaveOneOutBaseline)


def test_the_surprise_of_a_choice_is_paid_and_not_asked_of_the_words() -> None:
    rewards: list[Tensor] = []

    class Watching(NoBaseline):
        def forward(self, rollout: Any, returns: Tensor) -> Any:
            rewards.append(rollout.reward)
            return super().forward(rollout, returns)

    plain, curious = build("hard", Watching)(0), build("hard", Watching, entropy=0.5)(0)
    assert plain.metrics()["loss/answer"] == curious.metrics()["loss/answer"]
    surprise = rewards[1] - rewards[0]
    assert (surprise >= 0).all() and surprise.max() > 0.1
    assert build("hard", entropy=0.5)(0).metrics()["loss/policy"] != plain.metrics()["loss/policy"]


@pytest.mark.parametrize("name", MODELS)
def test_all_is_measured(name: str) -> None:
    measured = build(name).eval().evaluate("test")
    spoken = {"bleu_1", "bleu_2", "bleu_3", "bleu_4", "rouge_l", "cider", "right", "perplexity"}
    nearest = {f"nearest_{each}" for each in spoken - {"perplexity"}}
    of_maps = set() if name == "blind" else {"map_entropy", "map_change", *POINTING}  # as far as something is said
    assert spoken | nearest <= measured.keys() <= spoken | nearest | of_maps
    assert measured["nearest_right"] == 100  # each has its like in training
    assert build(name).eval().evaluate("validation").keys() == measured.keys() - nearest
    assert all(map(math.isfinite, measured.values()))


def test_the_measures_do_not_depend_on_how_batches_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    task = build().eval()
    measured = task.evaluate("test")
    for room in ("corpus", "caption"):
        monkeypatch.setattr(f"ram.tasks.{room}.EVALUATION_BATCH", 3)
    assert task.evaluate("test") == pytest.approx(measured, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "steps", "baseline", "rollouts"),
    [
        ("soft", 60, NoBaseline, 1),
        ("hard", 150, MovingAverageBaseline, 1),
        ("hard", 100, LeaveOneOutBaseline, 3),
        ("glimpse", 150, NoBaseline, 1),
    ],
)
def test_it_learns_to_say_where_the_square_is(name: str, steps: int, baseline: Any, rollouts: int) -> None:
    task = build(name, baseline, rollouts_per_image=rollouts)
    train(task, range(steps), torch.optim.Adam(task.parameters(), 0.02))
    measured = task.eval().evaluate("test")
    assert measured["right"] == 100
    assert measured["bleu_1"] > 99
    assert measured.keys() >= {"map_entropy", *POINTING}


def test_sampled_captions_are_paid_by_what_they_gain() -> None:
    speaking, task = build(), build(reward="cider")
    train(speaking, range(20), torch.optim.Adam(speaking.parameters(), 0.005))
    task.load_state_dict(speaking.state_dict())
    before = task.eval().evaluate("test")
    losses = train(task, range(20, 110), torch.optim.Adam(task.parameters(), 0.005))
    assert all(map(math.isfinite, losses))
    after = task.eval().evaluate("test")
    assert after["cider"] > before["cider"] + 1
    assert after["right"] > before["right"]


def test_a_reward_takes_the_place_of_cross_entropy() -> None:
    task = build(reward="bleu").train()
    assert task(0).metrics().keys() == {"loss/policy", "train/reward"}
    assert task.training and task.model.training


@pytest.mark.parametrize("name", ["soft", "hard", "glimpse"])
def test_resuming_equals_going_on(name: str) -> None:
    def begin() -> tuple[CaptionTask, torch.optim.Optimizer]:
        task = build(name, MovingAverageBaseline, seed=5, dropout=0.2)
        return task, torch.optim.Adam(task.parameters(), 0.01)

    task, optimizer = begin()
    expected = train(task, range(8), optimizer)
    first, its_optimizer = begin()
    prefix = train(first, range(4), its_optimizer)
    second, other_optimizer = begin()
    second.load_state_dict(first.state_dict())
    other_optimizer.load_state_dict(its_optimizer.state_dict())
    assert prefix + train(second, range(4, 8), other_optimizer) == expected


def test_what_is_restored_is_the_trained_model_without_its_corpus() -> None:
    class Absent(Given):
        def load(self, split: str) -> Captions:
            raise AssertionError("The data are not needed.")

    task = build("soft", seed=3).eval()
    file = io.BytesIO()
    torch.save(task.state_dict(), file)
    file.seek(0)
    parts = {"encoder": convolutional, "embedding": partial(TokenEmbedding, size=8), **MODELS["soft"]}
    arguments = {"model": partial(Captioner, **parts), "corpus": Absent(), "search": None, "device": "cpu"}
    model = CaptionTask.restore(torch.load(file, weights_only=True), arguments)
    assert isinstance(model, ImageCaptioner) and not model.model.training
    examples = task.split("test")
    expected = [" ".join(best[0]) for best in task.describe(examples)]
    assert model.caption(examples.images) == model.caption(examples.images.float() / 255) == expected
    captions, weights = model.look(examples.images)
    assert [" ".join(words) for words in captions] == expected
    longest = max(map(len, captions))
    assert weights is not None and weights.shape == (10, longest + 1, 2 * 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(10, longest + 1))
    several = model.n_best(examples.images, 3)
    assert all(1 <= len(each) <= 3 and len(set(each)) == len(each) for each in several)
    assert model.sample(examples.images, temperature=0) == expected
    drawn, again, other = (model.sample(examples.images, 2.0, top_p=0.95, seed=seed) for seed in (0, 0, 1))
    assert drawn == again != other
    assert model.caption(examples.images.numpy()) == expected
    for images, told in [
        (torch.zeros(2, 3, 8, 16), r"^Images must be \(N, 1, 8, 16\) with N of at least 1, got \(2, 3, 8, 16\)\.$"),
        (torch.zeros(0, 1, 8, 16), r"with N of at least 1, got \(0, 1, 8, 16\)\.$"),
        (torch.zeros(2, 1, 8, 16, dtype=torch.int64), r"needs images of floats in \[0, 1\], or of uint8, got .* int64"),
        (torch.full((2, 1, 8, 16), 200.0), r"needs floats in \[0, 1\], or uint8: divide"),
    ]:
        with pytest.raises(InputError, match=told):
            model.caption(images)


def test_the_pictures_are_texts_and_strips() -> None:
    task = build().eval()
    pictures = task.pictures("test")
    assert pictures.keys() == {"captions.txt", "captions.png"}
    strip = pictures["captions.png"]
    assert isinstance(strip, np.ndarray) and strip.dtype == np.uint8 and strip.ndim == 3 and strip.std() > 5
    assert str(pictures["captions.txt"]).count("right   it is") == 10
    assert build("blind").eval().pictures("test").keys() == {"captions.txt"}
    assert build("glimpse").model.sensor is not None and task.model.sensor is None
    assert build("glimpse").eval().pictures("test").keys() == pictures.keys()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"label_smoothing": 1.0}, r"^task\.label_smoothing must be in \[0, 1\)"),
        ({"reward": "spice"}, r"^task\.reward must be null or one of cider, bleu, got 'spice'\.$"),
        ({"gamma": 2.0}, r"^task\.gamma must be in \[0, 1\], got 2\.0\.$"),
        ({"coverage": -1.0}, r"^task\.coverage must be finite and not negative, got -1\.0\.$"),
        ({"map_entropy": math.nan}, r"^task\.map_entropy must be finite and not negative, got nan\.$"),
        (
            {"monitor": "exact"},
            r"^task\.monitor must be cider, bleu_4, .*; got 'exact'",
        ),
        ({"min_count": 1000}, r"^No word comes up as often as task\.min_count=1000: lower it\.$"),
        ({"search": Search(beam_size=2), "min_count": 0}, r"^task\.min_count must be at least 1, got 0\.$"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        build(**options)


class Fixed(torch.nn.Module):
    """Speaks two words at most, each with probabilities that hang on the one before and are parameters."""

    max_length = None

    def __init__(self, words: int) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.randn(words, words, generator=torch.Generator().manual_seed(1)))

    def begin(self, images: Tensor) -> tuple[Tensor, None]:
        return torch.full((len(images), 1), START), None

    def decode(self, words: Tensor, memory: Any, state: Any = None, need_weights: bool = False) -> ModelOutput:
        return ModelOutput(self.logits[words], self.logits[words])


def test_the_gradient_of_sampled_captions_is_that_of_their_expected_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    task = build(reward="bleu", rollouts_per_image=4000, search=Search(max_length=2))
    model = task.model = Fixed(len(task.vocabulary))
    examples = task.split("train").choose([0])

    def paid(said: Sequence[Sequence[int]], references: Any) -> Tensor:
        return torch.tensor([float(len(each)) + sum(each) ** 2 / 50 for each in said])

    monkeypatch.setattr(task, "_worth", paid)
    torch.manual_seed(0)
    torch.stack([task._self_critical_loss(examples.images, examples).loss for _ in range(10)]).mean().backward()
    estimated, model.logits.grad = model.logits.grad, None

    mask_special_tokens = [number for number in range(len(task.vocabulary)) if number not in SPECIAL_TOKENS]
    share = torch.full_like(model.logits, -math.inf)
    share[:, mask_special_tokens] = model.logits[:, mask_special_tokens]
    share = share.softmax(-1)
    expected, words = torch.zeros(()), torch.zeros(())
    for first in mask_special_tokens:
        for second in mask_special_tokens if first != END else [END]:
            probability = share[START, first] * (1.0 if first == END else share[first, second])
            said = [number for number in (first, second) if number != END]
            expected = expected - probability * paid([said], None)[0]
            words = words + probability.detach() * (1 if first == END else 2)
    (expected / words).backward()
    torch.testing.assert_close(estimated, model.logits.grad, atol=0.02, rtol=0.05)


def test_what_was_said_is_read_again_within_the_positions_there_are() -> None:
    few = partial(MODELS["transformer"]["decoder"], positions=partial(LearnedPositions, max_length=4))
    task = build(decoder=few, reward="bleu")
    assert "cider" in task.eval().evaluate("validation") and task.pictures("validation")
    assert task(0).loss.isfinite()
    with pytest.raises(InputError, match="in the train split has 3 words or pieces, and the model positions for 2"):
        build(decoder=partial(few, positions=partial(LearnedPositions, max_length=3)))


def test_a_control_that_looks_anywhere_is_measured_alike_again() -> None:
    anywhere = partial(glimpse, context=partial(looks, policy=RandomLocation))
    task = build("glimpse", decoder=anywhere).eval()
    first = task.evaluate("validation")
    torch.manual_seed(7)
    assert task.evaluate("validation") == first
    assert first["map_change"] > 0, "it looks elsewhere for every word"


def test_weights_that_are_no_distribution_have_no_entropy() -> None:
    task = build(decoder=partial(soft, context=partial(CrossAttention, select=Unnormalised))).eval()
    measured = task.evaluate("validation")
    assert "map_entropy" not in measured and all(map(math.isfinite, measured.values()))
    assert task.pictures("validation")


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"decoder": glimpse}, "decoder=glimpse looks at the image itself, pixel by pixel: set encoder=pixels."),
        (
            {"encoder": partial(encoders.RecurrentEncoder, size=8)},
            "encoder must be one of images, such as encoder=convolutional, got Recurrent.",
        ),
        ({"augmentation": "warp"}, "task.augmentation must be null or name a _target_, got 'warp'."),
        (
            {"corpus": Reversal(size=10)},
            "This task needs a corpus of images with captions: choose another corpus or task.",
        ),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(parts: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as refused:
        build(**parts)
    assert str(refused.value) == told
