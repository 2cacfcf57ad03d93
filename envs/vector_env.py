"""The batched glimpse environment: agents look at images through small windows, then answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from torch import Tensor

from envs.answer_schedule import Answer, AnswerSchedule
from envs.errors import InputError
from envs.images import ImageSource, load_split, resolve_source
from envs.interface import (
    Output,
    OutputConverter,
    make_action_space,
    make_final_info,
    make_observation_space,
    parse_actions,
    parse_context_size,
    parse_reset_options,
    resolve_sensor,
)
from envs.random import EpisodeSeeds, RowRandom
from envs.rendering import EpisodeRecorder
from envs.rewards import CheckedReward, Reward, Transition
from envs.rewards.answers import CorrectAnswer
from envs.row_masks import LookCounter, RowMasks
from envs.scene import DynamicScenes, Scene, SceneBatch
from envs.sensor import Sensor
from envs.splits import Split, check_split
from envs.validation import check_choice, check_integer

_MAX_GLIMPSES = 10_000
_DYNAMIC_FPS = 6  # of scenes that change; static ones are shown more slowly


class GlimpseVectorEnv(gymnasium.vector.VectorEnv):
    """A batch of images, each observed through glimpses; pure torch with the interface of Gymnasium.

    An episode of a row has at most ``num_glimpses`` looks and as many actions. ``reset`` returns look 1; action t
    returns look t + 1. The last action only answers: its location is ignored and the observation is repeated, except
    that dynamic scenes show their last state.

    An observation is a dict of ``patches`` (B, scales, C, h, w) in [0, 1], ``location`` (B, 2) in [-1, 1] and ``step``
    (B,), the index of the look from 0; with scenes that have a goal, ``goal`` (B,), the class to find; and with
    ``context_size``, ``context`` (B, C, h', w'), the whole image averaged down.

    An action is a dict of ``location`` (B, 2), clamped to [-1, 1]; ``answer``, which is a class (B,), the
    log-probability of every class (B, K), normalized here, or a box (B, 4) as left, top, right, bottom in the units of
    locations; and with ``stop``, ``stop`` (B,) bool. ``info`` holds the ``index`` (B,) of every row's scene; its
    ``label`` if there is one: (B,), or (B, A) for A answers in order, -100 after the last; and its ``target`` if there
    is one: (B, 4), the box of the target object, in the units of locations. If the reward has components, the ``info``
    of a step holds each of them as ``reward/<name>`` (B,). Returned tensors and arrays are never modified later. The
    values of actions that are tensors on an accelerator are not checked, because that would wait for the device.

    ``reset`` takes the options ``index`` (the scenes to show, one for every ``rollouts_per_image`` rows), ``location``
    (the first locations, (B, 2)), ``episode`` (a number that the draws depend on, one for all rows or (B,)), and
    ``reset_mask`` ((B,) bool, the rows to reset). On the training split row i of an environment with seed s draws the
    same numbers as a single environment with seed s + i: they depend on (s + i, episode). On validation and test the
    scene and the first location depend on (s, index of the scene) only, whatever the batch. Without the option
    ``index`` the index itself is drawn from (s + i, episode) on every split.

    Args:
        images: an image source, or the name of a module in ``envs.images``.
        sensor: reads the patches: a sensor, or a name for :func:`envs.interface.resolve_sensor`.
        reward: the reward of a step; 1 for a correct answer by default. It is called once with zeros when the
            environment is built, and refused if it reads a field that this environment does not provide.
        num_envs: the number of rows, B. The rollouts of one image are adjacent.
        num_glimpses: the number of looks of an episode, at least 1; the largest number if the agent may stop.
        glimpses_per_answer: an answer is due after every ``glimpses_per_answer`` looks and at the end; None for one
            answer, at the end. An episode ends with its last answer.
        answer: the kind of answer; None if no answer is due.
        stop: whether an action may end the episode, with the answer it gives.
        split: "train", "validation" or "test".
        rollouts_per_image: the number of rows that show the same image; in training each has its own first location.
        first_location: "random" (uniform) or "center".
        context_size: the size of the coarse view in pixels, one number or (height, width); None for no coarse view.
        output: "numpy", or "torch" for tensors on ``device`` without a copy.
        device: of images and locations.
        autoreset_mode: what happens to a row that has ended. DISABLED: it freezes with reward 0; when all rows have
            ended, a step is an error. NEXT_STEP: its next action starts a new episode, with reward 0. SAME_STEP: the
            step that ends it returns the first look of the new episode, and the last look in ``info["final_obs"]``.
        render_mode: "rgb_array" or None.

    Attributes:
        scenes: the split that the environment shows.
        classes: the names of all answers, or of all goals.
        image_shape: (C, H, W) of the images.
        answer_schedule: the steps at which answers are due.

    Raises:
        InputError: an option is out of range, or the options do not fit one another.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 2, "autoreset_mode": AutoresetMode.NEXT_STEP}

    _observation: dict[str, Tensor]

    def __init__(
        self,
        images: str | ImageSource = "glyphs",
        sensor: str | Sensor = "retina_8x2",
        reward: Reward | None = None,
        num_envs: int = 1,
        num_glimpses: int = 6,
        glimpses_per_answer: int | None = None,
        answer: Answer | None = "label",
        stop: bool = False,
        split: Split = "train",
        rollouts_per_image: int = 1,
        first_location: Literal["random", "center"] = "random",
        context_size: int | tuple[int, int] | None = None,
        output: Output = "numpy",
        device: torch.device | str = "cpu",
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        self.sensor = resolve_sensor(sensor)
        self.reward = CorrectAnswer() if reward is None else reward
        self.num_envs, self.num_glimpses, self.rollouts_per_image = num_envs, num_glimpses, rollouts_per_image
        self.answer, self.stop, self.split, self.output = answer, stop, split, output
        self.first_location = first_location
        self.device = torch.device(device)
        self.render_mode = render_mode
        mode = autoreset_mode.value if isinstance(autoreset_mode, AutoresetMode) else autoreset_mode
        check_choice("env.autoreset_mode", mode, [each.value for each in AutoresetMode])
        self.autoreset_mode = AutoresetMode(mode)
        self._check_options(1 if glimpses_per_answer is None else glimpses_per_answer)

        self.scenes = load_split(resolve_source(images), split, self.device)
        self.classes = self.scenes.classes
        self._dynamic = self.scenes if isinstance(self.scenes, DynamicScenes) else None
        fps = _DYNAMIC_FPS if self._dynamic else self.metadata["render_fps"]
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode, "render_fps": fps}
        zero = torch.zeros(1, dtype=torch.int64, device=self.device)
        example = self.scenes.draw(zero, RowRandom(zero, zero))  # the first scene, for shapes and names
        horizon = self._dynamic.horizon if self._dynamic else None
        self.answer_schedule = AnswerSchedule(
            example.annotations, horizon, answer, num_glimpses, glimpses_per_answer, stop
        )
        self.context_size = parse_context_size(context_size, example.images)
        self._make_spaces(example)

        self._convert = OutputConverter(output)
        self._seeds: EpisodeSeeds | None = None
        self._location = torch.zeros(num_envs, 2, device=self.device)
        self._index = zero.repeat(num_envs)  # of each row's scene
        self._masks = RowMasks(num_envs, self.device)
        self._finished = self._masks.none
        self._counter = LookCounter(num_glimpses, self._masks)
        self._log_probs = torch.zeros(num_envs, len(self.classes), device=self.device)  # of the last answer
        # The rollouts of a dynamic scene diverge, so that they cannot share one image.
        rows_per_image = 1 if self._dynamic else rollouts_per_image
        self._shown = SceneBatch(self.sensor, self.context_size, rows_per_image)
        self._checked_reward = CheckedReward(self.reward, self._example_transition(example.annotations), self._masks)
        self._recorder = None
        if render_mode:
            self._recorder = EpisodeRecorder(num_envs, num_glimpses, self.sensor, self.classes, answer, self.device)

    def _check_options(self, glimpses_per_answer: int) -> None:
        for name in ("num_envs", "num_glimpses", "rollouts_per_image"):
            check_integer(f"env.{name}", getattr(self, name), 1)
        check_integer("env.num_glimpses", self.num_glimpses, 1, _MAX_GLIMPSES)
        check_integer("env.glimpses_per_answer", glimpses_per_answer, 1)
        check_split(self.split)
        check_choice("env.answer", self.answer, (None, *get_args(Answer)))
        check_choice("env.first_location", self.first_location, ("random", "center"))
        check_choice("env.output", self.output, get_args(Output))
        check_choice("env.render_mode", self.render_mode, (None, *self.metadata["render_modes"]))
        if self.num_envs % self.rollouts_per_image:
            multiple = f"a multiple of env.rollouts_per_image ({self.rollouts_per_image})"
            raise InputError(f"env.num_envs ({self.num_envs}) must be {multiple}.")
        if self.rollouts_per_image > 1 and self.autoreset_mode is not AutoresetMode.DISABLED:
            raise InputError("env.rollouts_per_image above 1 needs autoreset_mode=AutoresetMode.DISABLED.")

    def _make_spaces(self, example: Scene) -> None:
        self.image_shape = tuple(example.images.shape[1:])
        channels = self.image_shape[0]
        self.single_observation_space = make_observation_space(
            self.sensor.patch_shape(channels),
            self.num_glimpses,
            num_goals=len(self.classes) if "goal" in example.annotations else 0,
            context_shape=(channels, *self.context_size) if self.context_size else None,
        )
        self.single_action_space = make_action_space(self.answer, len(self.classes), self.stop)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    @property
    def location(self) -> Tensor:
        """The current location of every row: (B, 2) float32 in [-1, 1], on the environment's device."""
        if self._seeds is None:
            raise InputError("Call reset before reading the location or calling step.")
        return self._location

    @property
    def interface(self) -> dict[str, Any]:
        """The sizes and options that an agent for this environment is built with, as plain values."""
        space = self.single_observation_space
        assert isinstance(space, spaces.Dict)
        return {
            "patch_shape": list(space["patches"].shape or ()),
            "answer": self.answer,
            "num_classes": len(self.classes),
            "num_goals": len(self.classes) if "goal" in space.spaces else 0,
            "context_shape": list(space["context"].shape or ()) if self.context_size else None,
            "can_stop": self.stop,
        }

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Starts new episodes, in all rows or in those of ``options["reset_mask"]``.

        Args:
            seed: row i draws from seed + i; or one seed for each row. None keeps the seeds. With a mask, only the
                rows that are reset take it.
            options: see the class.
        """
        super().reset(seed=seed if isinstance(seed, int | np.integer) else None)
        # Everything is parsed before anything changes, so that a refused reset leaves the environment unchanged.
        index, location, episode, mask = parse_reset_options(
            options, self.num_envs, self.rollouts_per_image, len(self.scenes), self.device
        )
        if mask is not None and self._seeds is None:
            raise InputError("The first reset must be of all rows, without a reset_mask.")
        if seed is not None or self._seeds is None:
            seed = int(self.np_random.integers(2**31)) if seed is None else seed
            seeds = EpisodeSeeds(seed, self.num_envs, self.split, self.device)
            if mask is None or self._seeds is None:
                self._seeds = seeds
            else:
                self._seeds.replace(mask, seeds)
        self._start(self._masks.all if mask is None else mask, index, location, episode)
        self._observation = self._shown.observe(self._location, self._counter.look)
        return self._convert_observation(), self._info({}, self._masks.invert(self._finished))

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], Any, Any, Any, dict[str, Any]]:
        """Moves every location and rewards every answer.

        Returns:
            Observation, reward (B,), terminated (B,), truncated (B,), info.
        """
        if self._seeds is None:
            raise InputError("Call reset before step.")
        action = parse_actions(actions, self.single_action_space, self.answer, self.num_envs, self.device)
        masks, active = self._masks, self._masks.invert(self._finished)
        if self.autoreset_mode is AutoresetMode.DISABLED and not masks.any(active):
            raise InputError("Every row has ended: call reset before the next step.")
        if self._dynamic:
            self._shown.advance(self._dynamic, action["answer"], active)
        schedule, look = self.answer_schedule, self._counter.look
        if schedule.is_common and self._counter.common is not None:
            due, last = map(masks.constant, schedule.due_and_last_of_all(self._counter.common))
        else:
            due, last = schedule.due_and_last(look, self._shown.annotations, action.get("stop"))
        due, last = masks.both(due, active), masks.both(last, active)
        moving = masks.both(active, masks.invert(last))

        previous = self._location
        if moving is not masks.none:
            self._location = masks.where(moving, action["location"].clamp(-1, 1), previous)
        reached = {"location": self._location, "previous_location": previous, "step": look}
        transition = self._transition(action, self._shown.annotations, self._log_probs, due=due, last=last, **reached)
        reward, components = self._checked_reward(transition, active)
        self._counter.advance(moving)
        starting, self._finished = self._finished, masks.either(self._finished, last)
        terminated = self._finished
        if self.answer == "log_probs":
            self._log_probs = action["answer"]
            if self.answer_schedule.num_answers > 1:  # the next answer starts from a uniform distribution
                self._log_probs = torch.where(due[:, None], -math.log(len(self.classes)), self._log_probs)
        if self._recorder:
            self._recorder.record(self._counter.look, self._location, action.get("answer"), due)

        if self.autoreset_mode is AutoresetMode.NEXT_STEP and masks.any(starting):
            terminated = last
            self._start(starting)
            moving = masks.either(moving, starting)
        if self._dynamic or masks.any(moving):
            self._observation = self._shown.observe(self._location, self._counter.look)
        final, rewarded = {}, active
        if self.autoreset_mode is AutoresetMode.SAME_STEP and masks.any(last):
            final = make_final_info(self._observation, self._info(components, last), last, self._convert)
            rewarded = masks.invert(last)
            self._start(last)
            self._observation = self._shown.observe(self._location, self._counter.look)
        results = {"reward": reward, "terminated": terminated, "truncated": masks.none}
        observation, info = self._convert_observation(), self._info(components, rewarded) | final
        return observation, *self._convert(results).values(), info

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Returns a picture (H, W, 3) uint8 of each row: the dimmed image, bright windows, the path and the answers."""
        if self._recorder is None:
            return None
        if self._seeds is None:
            raise InputError("Call reset before render.")
        return tuple(
            self._recorder.render(self._shown, row, look, self._dynamic is not None)
            for row, look in enumerate(self._counter.look.tolist())
        )

    def _start(
        self,
        mask: Tensor,
        index: Tensor | None = None,
        location: Tensor | None = None,
        episode: Tensor | None = None,
    ) -> None:
        """Begins an episode in the masked rows (B,)."""
        assert self._seeds is not None
        count = self.rollouts_per_image
        rows = None if mask is self._masks.all else mask.nonzero().flatten()
        first_rows = (slice(None, None, count) if count > 1 else None) if rows is None else rows[::count]  # of an image
        self._seeds.begin_episode(rows, episode)
        by_episode = self._seeds.by_episode(first_rows)
        if index is not None:
            drawn = index if rows is None else index[rows[::count] // count]
        else:
            by_episode.prepare({"index": (), "first_location": (2,)})
            drawn = by_episode.integers("index", len(self.scenes))
        by_scene = self._seeds.by_scene(first_rows, drawn, by_episode)
        scene = self.scenes.draw(drawn, by_scene)
        if count > 1:
            drawn = drawn.repeat_interleave(count)
            by_scene = self._seeds.by_scene(rows, drawn)
        if location is not None:
            start = (location if rows is None else location[rows]).clamp(-1, 1)
        elif self.first_location == "center":
            start = torch.zeros(len(drawn), 2, device=self.device)
        else:
            start = by_scene.uniform("first_location", 2).mul_(2).sub_(1)

        annotations = scene.annotations
        if count > 1:
            annotations = {name: value.repeat_interleave(count, 0) for name, value in annotations.items()}
        pictures = scene.images.repeat_interleave(count, 0) if self._dynamic else scene.images
        self._shown.show(Scene(pictures, annotations, scene.index), rows)
        if rows is None:
            self._location, self._index = start, drawn
        else:
            self._location = self._location.index_copy(0, rows, start)
            self._index = self._index.index_copy(0, rows, drawn)
        self._finished = self._masks.both(self._finished, self._masks.invert(mask))
        if self.answer == "log_probs":
            uniform = torch.full_like(self._log_probs, -math.log(len(self.classes)))
            self._log_probs = self._masks.where(mask, uniform, self._log_probs)
        self._counter.restart(rows)
        if self._recorder:
            self._recorder.start(mask.nonzero().flatten(), start)

    def _transition(
        self,
        action: Mapping[str, Tensor],
        annotations: Mapping[str, Tensor],
        previous_log_probs: Tensor,
        **reached: Tensor,
    ) -> Transition:
        """Returns the transition that the reward receives; ``reached`` are the fields that every transition has."""
        fields = {**annotations, **reached, "stop": action.get("stop", self._masks.none)}
        if self.answer:
            fields["answer"] = action["answer"]
        if self.answer == "log_probs":
            fields["answer"] = action["answer"].argmax(-1)
            fields |= {"log_probs": action["answer"], "previous_log_probs": previous_log_probs}
        if "label" in fields:
            fields["label"] = self.answer_schedule.current_label(reached["step"], annotations)
        return Transition(**fields)

    def _example_transition(self, annotations: Mapping[str, Tensor]) -> Transition:
        """Returns a transition of zeros with the annotations of one scene in every row."""
        rows, location, step = self.num_envs, self._location, self._counter.look
        answer = {"box": location.new_zeros(rows, 4), "log_probs": self._log_probs}.get(self.answer or "", step)
        expanded = {name: value.expand(rows, *value.shape[1:]) for name, value in annotations.items()}
        reached = {"location": location, "previous_location": location, "step": step}
        none = self._finished
        return self._transition({"answer": answer}, expanded, self._log_probs, due=none, last=none, **reached)

    def _info(self, components: Mapping[str, Tensor], rewarded: Tensor) -> dict[str, Any]:
        """Returns index, label and target of every row, and the components of the reward in the ``rewarded`` rows."""
        shown = self._shown.annotations
        fields = {"index": self._index} | {name: shown[name] for name in ("label", "target") if name in shown}
        info = {**fields, **components}
        if self.output == "numpy":  # Gymnasium marks the rows in which a field is present
            info |= {f"_{name}": self._masks.all for name in fields}
            info |= {f"_{name}": rewarded for name in components}
        return self._convert(info)

    def _convert_observation(self) -> dict[str, Any]:
        """Returns the observation; its patches are copied only if the next step may return them again."""
        look = self._counter.common if self.answer_schedule.is_common else None
        return self._convert(self._observation, () if look in (None, self.num_glimpses - 1) else ("patches",))
