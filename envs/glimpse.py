"""The glimpse environments: an agent sees an image through a few small windows, then names its class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast
from weakref import WeakValueDictionary

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from torch import Tensor

from envs.errors import InputError
from envs.images import ImageSet, ImageSource, Split, check_split, resolve_source
from envs.random import RowRandom
from envs.rendering import render_glimpses
from envs.rewards import Reward, Transition
from envs.rewards.correct_answer import CorrectAnswer
from envs.sensor import GlimpseSensor, PreparedImages

_loaded: WeakValueDictionary[Any, ImageSet] = WeakValueDictionary()


def _load(source: ImageSource, split: Split, device: torch.device) -> ImageSet:
    """Loads a split, or shares the tensors of an environment that holds the same one."""
    key = (source, split, str(device))
    images = _loaded.get(key)
    if images is None:
        images = _loaded[key] = source.load(split, device)
    return images


class GlimpseVectorEnv(gymnasium.vector.VectorEnv):
    """A batch of images, each seen through its own gaze; a pure-torch core with the interface of Gymnasium.

    A row's episode has ``num_glimpses`` looks and as many actions. ``reset`` gives look 1; action t gives look t + 1;
    the last action is only judged: its location is ignored and the observation repeats.

    An observation is a dict of ``patches`` (B, scales, C, h, w) in [0, 1], ``location`` (B, 2) in [-1, 1], and
    ``step`` (B,), the number of the look from 0. An action is a dict of ``location`` (B, 2), clamped to [-1, 1], and
    ``answer`` (B,), a class. ``info`` holds ``index`` and ``label`` of every row's image. Tensors and arrays handed
    out are never written again.

    ``reset`` takes the options ``index`` (which images to show, one for every ``rollouts_per_image`` rows),
    ``location`` (the first ones, (B, 2)), ``episode`` (a number that the draws depend on, one for all rows or (B,)),
    and ``reset_mask`` ((B,) bool, the rows to reset). On the training split row i of an environment seeded s draws as
    a single environment seeded s + i does. On validation and test the draws that make up an episode depend on the seed
    s and the image alone, so every batch sees the same.

    Args:
        images: where the images come from: a source, or the name of a module in ``envs.images``.
        sensor: how they are read; one 8 x 8 patch by default.
        reward: what a step is worth; 1 for a right answer at the end by default.
        num_envs: rows. The rollouts of one image are adjacent.
        num_glimpses: looks an episode, at least 1.
        split: "train", "validation" or "test".
        rollouts_per_image: rows that see the same image; in training each from its own first location.
        first_location: "random" (uniform) or "center".
        output: "numpy", or "torch" for tensors on ``device`` without a copy.
        device: where images and gazes are held.
        autoreset_mode: what happens to a row that has ended. DISABLED: it freezes with reward 0, and once all have
            ended only ``reset`` helps. NEXT_STEP: its next action starts a new episode, with reward 0. SAME_STEP: the
            step that ends it returns the new episode's first look, and the last one in ``info["final_obs"]``.
        render_mode: "rgb_array" or None.
    """

    metadata = {
        "render_modes": ["rgb_array"],
        "render_fps": 2,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    _prepared: PreparedImages
    _location: Tensor  # (B, 2)
    _look: Tensor  # (B,) the number of the present look, from 0
    _finished: Tensor  # (B,) bool
    _label: Tensor  # (B,)
    _index: Tensor  # (B,) which image

    def __init__(
        self,
        images: str | ImageSource = "glyphs",
        sensor: GlimpseSensor | None = None,
        reward: Reward | None = None,
        num_envs: int = 1,
        num_glimpses: int = 6,
        split: Split = "train",
        rollouts_per_image: int = 1,
        first_location: Literal["random", "center"] = "random",
        output: Literal["numpy", "torch"] = "numpy",
        device: torch.device | str = "cpu",
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        for name, value in [
            ("num_envs", num_envs),
            ("num_glimpses", num_glimpses),
            ("rollouts_per_image", rollouts_per_image),
        ]:
            if value < 1:
                raise InputError(f"env.{name} must be at least 1, got {value}.")
        check_split(split)
        for name, choice, choices in [
            ("first_location", first_location, ("random", "center")),
            ("output", output, ("numpy", "torch")),
            ("render_mode", render_mode, (None, *self.metadata["render_modes"])),
        ]:
            if choice not in choices:
                raise InputError(f"env.{name} must be one of {', '.join(map(str, choices))}, got {choice!r}.")
        try:
            self.autoreset_mode = AutoresetMode(autoreset_mode)
        except ValueError as error:
            modes = ", ".join(mode.value for mode in AutoresetMode)
            raise InputError(f"env.autoreset_mode must be one of {modes}, got {autoreset_mode!r}.") from error
        if num_envs % rollouts_per_image:
            raise InputError(
                f"env.num_envs ({num_envs}) must be a multiple of env.rollouts_per_image ({rollouts_per_image})."
            )
        if rollouts_per_image > 1 and self.autoreset_mode is not AutoresetMode.DISABLED:
            raise InputError("env.rollouts_per_image above 1 needs autoreset_mode=AutoresetMode.DISABLED.")

        self.sensor = sensor or GlimpseSensor()
        self.reward = reward or CorrectAnswer()
        self.num_envs = num_envs
        self.num_glimpses = num_glimpses
        self.split = split
        self.rollouts_per_image = rollouts_per_image
        self.first_location = first_location
        self.output = output
        self.device = torch.device(device)
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.image_set = _load(resolve_source(images), split, self.device)
        self.classes = self.image_set.classes

        channels = self.image_set.images.shape[1]
        self.single_observation_space = spaces.Dict(
            patches=spaces.Box(0, 1, self.sensor.patch_shape(channels), np.float32),
            location=spaces.Box(-1, 1, (2,), np.float32),
            step=spaces.Discrete(num_glimpses),
        )
        self.single_action_space = spaces.Dict(
            location=spaces.Box(-1, 1, (2,), np.float32),
            answer=spaces.Discrete(len(self.classes)),
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        self._seed: Tensor | None = None  # (B,) one a row
        self._scene_seed: Tensor | None = None  # (B,) the same, but shared by all rows on validation and test
        self._reward_is_checked = False

    # The public interface.

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Starts new episodes, in all rows or in those of ``options["reset_mask"]``.

        Args:
            seed: row i draws from seed + i; or one a row. None goes on with the seeds that are set. With a mask, only
                the rows to reset take it.
            options: see the class.
        """
        super().reset(seed=seed if isinstance(seed, int | np.integer) else None)
        readers = {
            "index": self._read_index,
            "location": self._read_location,
            "episode": self._read_episode,
            "reset_mask": self._read_mask,
        }
        options = options or {}
        if not options.keys() <= readers.keys():
            unknown = ", ".join(sorted(map(str, options.keys() - readers.keys())))
            raise InputError(f"reset knows the options index, location, episode and reset_mask, not {unknown}.")
        # All is read before anything changes, so that a refused reset leaves the environment as it was.
        read = {name: readers[name](value) for name, value in options.items() if value is not None}
        rows = read.pop("reset_mask", None)
        if seed is not None or self._seed is None:
            self._set_seed(int(self.np_random.integers(2**31)) if seed is None else seed, rows)
        self._start(rows, **read)
        self._observation = self._observe()
        return self._hand_out(self._observation), self._info()

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], Any, Any, Any, dict[str, Any]]:
        """Moves every gaze and judges every answer.

        Returns:
            Observation, reward (B,), terminated (B,), truncated (B,), info.
        """
        if self._seed is None:
            raise InputError("Call reset before step.")
        location, answer = self._read_actions(actions)
        acting = ~self._finished
        if self.autoreset_mode is AutoresetMode.DISABLED and not acting.any():
            raise InputError("Every row has ended: call reset before the next step.")
        last = acting & (self._look == self.num_glimpses - 1)
        moving = acting & ~last

        previous = self._location
        self._location = torch.where(moving[:, None], location.clamp(-1, 1), previous)
        reward = self.reward(Transition(answer, self._label, self._location, previous, self._look, last))
        if not self._reward_is_checked:
            self._check_reward(reward)
        reward = torch.where(acting, reward, 0)
        self._look = self._look + moving
        starting, self._finished = self._finished, self._finished | last
        terminated = self._finished
        if self.render_mode:
            self._record(answer, last)

        if self.autoreset_mode is AutoresetMode.NEXT_STEP and starting.any():
            terminated = last
            self._start(starting)
            moving = moving | starting
        if moving.any():
            self._observation = self._observe()
        info = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP and last.any():
            info = self._final_info(last)
            self._start(last)
            self._observation = self._observe()
        truncated = torch.zeros_like(terminated)
        results: tuple[Any, ...] = (reward, terminated, truncated)
        if self.output == "numpy":
            results = tuple(map(_numpy, results))
        return self._hand_out(self._observation), *results, self._info() | info

    def render(self) -> tuple[np.ndarray, ...] | None:
        """One (H, W, 3) uint8 picture a row: the image dimmed, the windows lit, the path, the answer and the label."""
        if self.render_mode is None:
            return None
        if self._seed is None:
            raise InputError("Call reset before render.")
        looks = (self._look + 1).tolist()
        return tuple(
            render_glimpses(
                self._images[row // self.rollouts_per_image],
                self._path[row, : looks[row]],
                self.sensor,
                label=self.classes[int(self._label[row])],
                answer=self.classes[int(self._answer[row])] if self._answer[row] >= 0 else None,
            )
            for row in range(self.num_envs)
        )

    # One episode after another.

    def _set_seed(self, seed: int | Sequence[int], rows: Tensor | None) -> None:
        """Seeds the masked rows, or all."""
        if isinstance(seed, int | np.integer):
            own = torch.arange(self.num_envs, device=self.device) + int(seed)
            shared = torch.full_like(own, int(seed))
        else:
            if len(seed) != self.num_envs:
                raise InputError(f"reset needs one seed, or {self.num_envs} for as many rows, got {len(seed)}.")
            shared = own = torch.tensor([int(value) for value in seed], device=self.device)
        scene = own if self.split == "train" else shared
        if rows is None or self._seed is None or self._scene_seed is None:
            self._seed, self._scene_seed, self._episode = own, scene, torch.full_like(own, -1)
        else:
            self._seed = torch.where(rows, own, self._seed)
            self._scene_seed = torch.where(rows, scene, self._scene_seed)
            self._episode = self._episode.masked_fill(rows, -1)

    def _start(
        self,
        rows: Tensor | None,
        index: Tensor | None = None,
        location: Tensor | None = None,
        episode: Tensor | None = None,
    ) -> None:
        """Begins an episode in the masked rows, or in all."""
        assert self._seed is not None
        assert self._scene_seed is not None
        every = slice(None)
        at: Any = every if rows is None else rows.nonzero().flatten()
        per_image = self.rollouts_per_image
        groups: Any = every if rows is None else at[::per_image] // per_image

        number = self._episode + 1 if episode is None else episode
        number = self._episode = number if rows is None else torch.where(rows, number, self._episode)
        first = self._seed[::per_image], number[::per_image]  # the row that speaks for each image
        if index is None:
            drawn = RowRandom(first[0][groups], first[1][groups]).integers("index", len(self.image_set))
        else:
            drawn = index[groups]
        if self.split == "train":
            row_random = RowRandom(self._seed[at], number[at])
            image_random = RowRandom(first[0][groups], first[1][groups])
        else:
            row_random = RowRandom(self._scene_seed[at], drawn.repeat_interleave(per_image))
            image_random = RowRandom(self._scene_seed[::per_image][groups], drawn)
        images = self.image_set.draw(drawn, image_random)
        prepared = self.sensor.prepare(images)
        if location is not None:
            start = location[at].clamp(-1, 1)
        elif self.first_location == "center":
            start = torch.zeros(len(row_random.seed), 2, device=self.device)
        else:
            start = row_random.uniform("first_location", 2) * 2 - 1
        labels = self.image_set.labels[drawn].repeat_interleave(per_image)
        numbers = drawn.repeat_interleave(per_image)

        if rows is None:
            self._prepared = prepared
            self._location, self._label, self._index = start, labels, numbers
            self._look = torch.zeros_like(self._seed)
            self._finished = torch.zeros_like(self._seed, dtype=torch.bool)
        else:
            for held, new in zip(self._prepared.maps, prepared.maps, strict=True):
                held[groups] = new  # never handed out
            self._location = self._location.index_copy(0, at, start)
            self._label = self._label.index_copy(0, at, labels)
            self._index = self._index.index_copy(0, at, numbers)
            self._look = self._look.masked_fill(rows, 0)
            self._finished = self._finished & ~rows
        if self.render_mode:
            if rows is None:
                self._images = images.clone()
                self._path = torch.zeros(self.num_envs, self.num_glimpses, 2, device=self.device)
                self._answer = torch.full_like(self._seed, -1)
            else:
                self._images[groups] = images
            self._path[at, 0] = start
            self._answer[at] = -1

    def _observe(self) -> dict[str, Tensor]:
        patches = self.sensor(self._prepared, self._location)
        return {"patches": patches, "location": self._location, "step": self._look}

    def _record(self, answer: Tensor, last: Tensor) -> None:
        self._path.scatter_(1, self._look[:, None, None].expand(-1, 1, 2), self._location[:, None])
        self._answer = torch.where(last, answer, self._answer)

    # From and to the user.

    def _hand_out(self, observation: dict[str, Tensor]) -> dict[str, Any]:
        if self.output == "torch":
            return dict(observation)
        return {name: _numpy(value) for name, value in observation.items()}

    def _info(self) -> dict[str, Any]:
        if self.output == "torch":
            return {"index": self._index, "label": self._label}
        present = np.ones(self.num_envs, dtype=np.bool_)
        return {
            "index": _numpy(self._index),
            "_index": present,
            "label": _numpy(self._label),
            "_label": present.copy(),
        }

    def _final_info(self, last: Tensor) -> dict[str, Any]:
        """The observation and info of rows that a same-step reset is about to replace, as Gymnasium lays them out."""
        info = self._info()
        if self.output == "torch":
            return {"final_obs": self._observation, "_final_obs": last, "final_info": info, "_final_info": last}
        ended = _numpy(last)
        observation = self._hand_out(self._observation)
        final_obs = np.full(self.num_envs, None, dtype=object)
        for row in ended.nonzero()[0]:
            final_obs[row] = {name: value[row] for name, value in observation.items()}
        final_info = info | {name: ended.copy() for name in info if name.startswith("_")}
        return {
            "final_obs": final_obs,
            "_final_obs": ended,
            "final_info": final_info,
            "_final_info": ended.copy(),
        }

    def _read_actions(self, actions: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        if not isinstance(actions, Mapping) or set(actions) != {"location", "answer"}:
            named = sorted(actions) if isinstance(actions, Mapping) else type(actions).__name__
            raise InputError(f"An action is a dict of location and answer, got {named}.")
        answer = self._read_integers("action['answer']", actions["answer"], self.num_envs)
        if not ((answer >= 0) & (answer < len(self.classes))).all():
            raise InputError(f"action['answer'] must lie in 0 .. {len(self.classes) - 1}.")
        return self._read_location(actions["location"]), answer

    def _read_location(self, value: Any) -> Tensor:
        location = self._read("location", value)
        if location.shape != (self.num_envs, 2) or not location.is_floating_point():
            raise InputError(
                f"location must be ({self.num_envs}, 2) floating point numbers, "
                f"got {tuple(location.shape)} {str(location.dtype).removeprefix('torch.')}."
            )
        if not torch.isfinite(location).all():
            raise InputError("location must be finite, got NaN or infinity.")
        return location.float()

    def _read_index(self, value: Any) -> Tensor:
        index = self._read_integers("options['index']", value, self.num_envs // self.rollouts_per_image)
        if int(index.min()) < 0 or int(index.max()) >= len(self.image_set):
            raise InputError(f"options['index'] must lie in 0 .. {len(self.image_set) - 1}.")
        return index

    def _read_episode(self, value: Any) -> Tensor:
        episode = self._read("options['episode']", value)
        if episode.ndim == 0:
            episode = episode.expand(self.num_envs)
        return self._read_integers("options['episode']", episode, self.num_envs).clone()

    def _read_mask(self, value: Any) -> Tensor:
        mask = self._read("options['reset_mask']", value)
        if mask.shape != (self.num_envs,) or mask.dtype != torch.bool or not mask.any():
            raise InputError(f"options['reset_mask'] must be ({self.num_envs},) bool with at least one True.")
        if not hasattr(self, "_prepared"):
            raise InputError("The first reset must be of all rows, without a reset_mask.")
        by_image = mask.view(-1, self.rollouts_per_image)
        if not (by_image == by_image[:, :1]).all():
            raise InputError("options['reset_mask'] must reset all rollouts of an image or none.")
        return mask

    def _read_integers(self, name: str, value: Any, count: int) -> Tensor:
        numbers = self._read(name, value)
        if numbers.shape != (count,) or not _is_integer(numbers):
            raise InputError(
                f"{name} must be ({count},) integers, "
                f"got {tuple(numbers.shape)} {str(numbers.dtype).removeprefix('torch.')}."
            )
        return numbers.long()

    def _read(self, name: str, value: Any) -> Tensor:
        """A tensor as it is, anything else copied: a user may write into an array again."""
        if isinstance(value, Tensor):
            return value.detach().to(self.device)
        try:
            return torch.from_numpy(np.array(value)).to(self.device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"{name} must be an array of numbers: {error}") from error

    def _check_reward(self, reward: Any) -> None:
        name = type(self.reward).__name__
        if not isinstance(reward, Tensor):
            raise InputError(f"{name} must return a tensor, got {type(reward).__name__}.")
        if reward.shape != (self.num_envs,) or reward.dtype != torch.float32 or reward.device != self._look.device:
            raise InputError(
                f"{name} must return ({self.num_envs},) float32 on {self._look.device}, "
                f"got {tuple(reward.shape)} {str(reward.dtype).removeprefix('torch.')} on {reward.device}."
            )
        if reward.isnan().any():
            raise InputError(f"{name} returned NaN.")
        self._reward_is_checked = True


class GlimpseEnv(gymnasium.Env):
    """One image and one gaze: a view of :class:`GlimpseVectorEnv` with one row, in numpy.

    Takes the arguments of the vector environment but for ``num_envs``, ``rollouts_per_image``, ``output`` and
    ``autoreset_mode``; observations, actions and options lose their first dimension.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 2}

    def __init__(self, render_mode: str | None = None, **arguments: Any) -> None:
        self.vector_env = GlimpseVectorEnv(
            num_envs=1, autoreset_mode=AutoresetMode.DISABLED, render_mode=render_mode, **arguments
        )
        self.render_mode = render_mode
        self.observation_space = self.vector_env.single_observation_space
        self.action_space = self.vector_env.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Starts an episode; see the vector environment for the options."""
        super().reset(seed=seed)
        batched = {name: [value] for name, value in (options or {}).items() if value is not None}
        observation, info = self.vector_env.reset(seed=seed, options=batched)
        return _row(observation), _row(info)

    def step(self, action: Mapping[str, Any]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Moves the gaze, or on the last step answers."""
        if not isinstance(action, Mapping):
            raise InputError(f"An action is a dict of location and answer, got {type(action).__name__}.")
        batched = {name: [value] for name, value in action.items()}
        observation, reward, terminated, truncated, info = self.vector_env.step(batched)
        return _row(observation), float(reward[0]), bool(terminated[0]), bool(truncated[0]), _row(info)

    def render(self) -> np.ndarray | None:
        """The (H, W, 3) uint8 picture of :meth:`GlimpseVectorEnv.render`."""
        frames = self.vector_env.render()
        return None if frames is None else frames[0]


def _is_integer(values: Tensor) -> bool:
    return not (values.is_floating_point() or values.is_complex() or values.dtype == torch.bool)


def _numpy(values: Tensor) -> np.ndarray:
    """A copy, which the user may write into."""
    return values.cpu().numpy().copy()


def _row(values: dict[str, Any]) -> dict[str, Any]:
    return cast(dict[str, Any], {name: value[0] for name, value in values.items() if not name.startswith("_")})
