"""Classification of images by networks that see the whole image: the rivals of glimpses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from envs.errors import InputError
from envs.images import ImageSource, load_split, resolve_source
from envs.random import EpisodeSeeds, RowRandom
from envs.scene import Scene, SceneSet
from envs.splits import Split
from envs.validation import check_positive_integers, check_weight
from ram.baselines import Baseline
from ram.distributed import parallel_map, world
from ram.image_classifier import ImageClassifier
from ram.inference.images import ImagePredictor
from ram.metrics.classification import Classification
from ram.metrics.pointing import pointing
from ram.plots.images import classified_images
from ram.tasks import Artifact, StepResult, Task, check_classes, noise_seed, substate
from ram.tasks.hard_attention import hard_attention_loss
from ram.tasks.image_batches import (
    EVALUATION_ROWS,
    EVALUATION_SEED,
    SCALE_IMAGES,
    ImageBatches,
    evaluation_batches,
    first_row_seed,
    image_names,
)

_PLOTTED_IMAGES = 16


class ClassifyImageTask(Task):
    """Trains an :class:`ImageClassifier` by cross-entropy, and its hard attention, if any, by REINFORCE.

    The scenes of validation and test are those of :class:`ram.tasks.glimpse.GlimpseTask`.

    Args:
        images: an image source, or the name of a module in ``envs.images``.
        model: builds the classifier; called with ``image_shape`` and ``num_classes``.
        baseline: builds the baseline of hard attention.
        batch_size: images per step, over all processes.
        policy_weight: weight of the REINFORCE loss of hard attention.
        seed: of weights, batches and noise.
        device: of the model and the images.
    """

    unit = "images"
    monitor = "error"
    class_layers = ("model.out.",)

    def __init__(
        self,
        images: str | ImageSource,
        model: Callable[..., ImageClassifier],
        baseline: Callable[..., Baseline],
        batch_size: int = 128,
        policy_weight: float = 1.0,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        super().__init__()
        check_positive_integers("task", batch_size=batch_size)
        check_weight("task.policy_weight", policy_weight)
        self.seed, self.device, self.policy_weight = seed, torch.device(device), policy_weight
        self._row_seed, self._weight = first_row_seed(seed), world().weight(batch_size)
        source = resolve_source(images)
        splits: list[Split] = ["train", "validation", "test"]
        self._scenes: dict[Split, SceneSet] = {split: load_split(source, split, device) for split in splits}
        self.classes = self._scenes["train"].classes
        check_classes(self.classes)
        self._batches = ImageBatches(len(self._scenes["train"]), batch_size, self._row_seed, self.device)
        self.steps_per_epoch, self.examples_per_step = self._batches.steps_per_epoch, batch_size
        first = torch.linspace(0, len(self._scenes["train"]) - 1, SCALE_IMAGES, device=self.device).long()
        scene = self._draw(first, first + self._row_seed, 0)
        if scene.annotations.get("label", torch.empty(0, 0)).ndim != 1:
            raise InputError("task=classify_image needs scenes with one label for an image, such as scenes=cluttered.")
        images_shown = scene.pixels()
        self.image_shape: tuple[int, int, int] = tuple(images_shown.shape[1:])  # type: ignore[assignment]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = model(image_shape=self.image_shape, num_classes=len(self.classes))
            feature_size = self.model.image_encoder.output_size
            self.baseline = baseline(feature_size=feature_size, rollouts_per_image=1)
        self.to(self.device)
        self.model.fit_input_scales(images_shown)

    def _draw(self, index: Tensor, row_seed: Tensor, step: int) -> Scene:
        """Returns the training scenes with the given indices (B,), with the draws of rows (B,) at a step."""
        return self._scenes["train"].draw(index, RowRandom(row_seed, torch.full_like(row_seed, step)))

    def forward(self, step: int) -> StepResult:
        self.model.image_encoder.anneal(self.progress)
        torch.manual_seed(noise_seed(self.seed, step, world().rank))
        index = self._batches(step)
        rows = torch.arange(len(index), device=self.device) + self._row_seed + self._batches.share.start
        scene = self._draw(index, rows, step)
        output, labels = self.model(scene.pixels()), scene.annotations["label"]
        losses = F.cross_entropy(output.logits, labels, reduction="none")
        terms = {"loss/answer": self._weight * losses.mean()}
        if output.log_prob is not None:
            mask = torch.ones_like(labels, dtype=torch.bool)
            policy_loss, terms["loss/baseline"] = hard_attention_loss(output, -losses.detach(), mask, self.baseline)
            terms["loss/policy"] = self.policy_weight * policy_loss

        @torch.no_grad()
        def metrics() -> dict[str, float]:
            accuracy = (output.logits.argmax(-1) == labels).float().mean()
            return {name: float(value) for name, value in terms.items()} | {"train/accuracy": 100 * float(accuracy)}

        return StepResult(torch.stack(list(terms.values())).sum(), metrics)

    def higher_is_better(self, metric: str) -> bool:
        return metric.startswith(("pointing", "mass_in_box"))

    @torch.no_grad()
    def evaluate(self, split: Split) -> dict[str, float]:
        """Computes the error in percent and the cross-entropy in nats.

        With attention also the mean entropy of its maps and, where the scenes have a target object, how the maps agree
        with its box; see :func:`ram.metrics.pointing.pointing`.
        """
        images = len(self._scenes[split])
        rows = min(EVALUATION_ROWS, max(map(len, world().parts(images))))
        parts = parallel_map(partial(self._measure, split, rows), world().parts(images))
        measured = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        metrics = {"error": 100 * float(measured["wrong"].double().mean()), "loss": float(measured["loss"].mean())}
        if "weights" in measured:
            maps = list(measured["weights"])
            boxes = self._pixels(measured["target"])[:, None] if "target" in measured else None
            named = [[[0]] * len(each) for each in maps]  # every map is to point to the target, the only object
            metrics |= pointing(maps, self.model.image_encoder.grid, self.image_shape[1:], boxes, named)
        return metrics

    def _pixels(self, boxes: Tensor) -> Tensor:
        """Converts boxes (N, 4) from the units of locations to pixels: left, top, right and bottom pixel."""
        height, width = self.image_shape[1:]
        return ((boxes + 1) / 2 * torch.tensor([width - 1, height - 1] * 2)).round()

    def _measure(self, split: Split, rows: int, images: range) -> dict[str, Tensor]:
        """Returns for some images of a split whether they are misclassified, the loss, attention maps and targets."""
        parts = []
        for index, mask in evaluation_batches(images, rows, self.device):
            scene = self._evaluation_scene(split, index)
            output, labels = self.model(scene.pixels()), scene.annotations["label"]
            part = {"wrong": output.logits.argmax(-1) != labels}
            part["loss"] = F.cross_entropy(output.logits, labels, reduction="none")
            if output.weights is not None:
                part["weights"] = output.weights.float()
                if "target" in scene.annotations:
                    part["target"] = scene.annotations["target"]
            parts.append({name: value[mask].cpu() for name, value in part.items()})
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    @torch.no_grad()
    def classify(self, split: Split) -> Classification:
        scenes = self._scenes[split]
        parts = []
        for index, mask in evaluation_batches(range(len(scenes)), min(EVALUATION_ROWS, len(scenes)), self.device):
            scene = self._evaluation_scene(split, index)
            parts.append((scene.annotations["label"][mask], self.model(scene.pixels()).logits.softmax(-1)[mask]))
        return Classification.join(parts, image_names(scenes), self.classes)

    def _evaluation_scene(self, split: Split, index: Tensor) -> Scene:
        """Returns the scenes of an evaluation with the given indices (B,)."""
        seeds = EpisodeSeeds(EVALUATION_SEED, len(index), split, self.device)
        return self._scenes[split].draw(index, seeds.by_scene(None, index))

    @torch.no_grad()
    def pictures(self, split: Split) -> dict[str, Artifact]:
        """Draws some images with their classes and, with attention, where it is."""
        count = min(_PLOTTED_IMAGES, len(self._scenes[split]))
        index = torch.linspace(0, len(self._scenes[split]) - 1, count, device=self.device).long()
        scene = self._evaluation_scene(split, index)
        output, images = self.model(scene.pixels()), scene.pixels().cpu()
        weights = None if output.weights is None else output.weights.float().mean(1).cpu()
        labels, predicted = (
            [self.classes[number] for number in numbers.tolist()]
            for numbers in (scene.annotations["label"], output.logits.argmax(-1))
        )
        drawn = classified_images(images, labels, predicted, weights, self.model.image_encoder.grid)
        return {"images.png": drawn}

    def get_extra_state(self) -> dict[str, Any]:
        """Returns what a trained model needs besides its weights."""
        return {"classes": list(self.classes), "image_shape": list(self.image_shape)}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Raises KeyError if the state is that of other classes or images."""
        if state != self.get_extra_state():
            raise KeyError(f"the images differ from those of the checkpoint: {state}")

    @classmethod
    def restore(cls, state: Mapping[str, Any], arguments: Mapping[str, Any]) -> ImagePredictor:
        extra, device = state["_extra_state"], arguments["device"]
        channels, height, width = extra["image_shape"]
        image_shape = channels, height, width
        model = arguments["model"](image_shape=image_shape, num_classes=len(extra["classes"]))
        model.load_state_dict(substate(state, "model."))
        return ImagePredictor(model.to(device).eval(), extra["classes"], image_shape, device)
