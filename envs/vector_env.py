"""The glimpse environments: an agent sees an image through a few small windows, then names its class."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from torch import Tensor

from envs.answer_schedule import Answer, AnswerSchedule
from envs.checked_reward import CheckedReward
from envs.errors import InputError
from envs.images import ImageSource, load_split, resolve_source
from envs.random import RowRandom
from envs.rendering import render_glimpses
from envs.rewards import Reward, Transition
from envs.rewards.correct_answer import CorrectAnswer
from envs.scene import DynamicScenes, Scene
from envs.sensor import GlimpseSensor, PreparedImages, Sensor
from envs.splits import IGNORE_INDEX, Split, check_split
from envs.validation import check_integer, read, read_flags, read_floats, read_integers

_MOVING_FPS = 6  # pictures a second of a scene that moves; one that stands still is looked at more slowly


class GlimpseVectorEnv(gymnasium.vector.VectorEnv):
    """A batch of scenes, each seen through its own gaze; a pure-torch core with the interface of Gymnasium.

    A row's episode has at most ``num_glimpses`` looks and as many actions. ``reset`` gives look 1; action t gives look
    t + 1; the last action is only judged: its location is ignored and the observation repeats, or where the scene
    moves with the answers, shows how it ended.

    An observation is a dict of ``patches`` (B, scales, C, h, w) in [0, 1], ``location`` (B, 2) in [-1, 1], and
    ``step`` (B,), the number of the look from 0; where the world names a class to look for, ``goal`` (B,); and with
    ``context_size`` the whole scene in few pixels, ``context`` (B, C, h', w').

    An action is a dict of ``location`` (B, 2), clamped to [-1, 1]; ``answer``, which is a class (B,), the
    log-probability of every class (B, K), normalised if it is not, or a box (B, 4), left, top, right, bottom in the
    units of locations; and with ``stop`` a flag (B,). ``info`` holds ``index`` of every row's scene, and ``label`` if
    there is one: the right answer (B,), or the right answers in order (B, A), with -100 after a scene's last. Where the
    reward has parts, the ``info`` of a step holds what each has paid, ``reward/<name>`` (B,). Tensors and arrays handed
    out are never written again.

    ``reset`` takes the options ``index`` (which scenes to show, one for every ``rollouts_per_image`` rows),
    ``location`` (the first ones, (B, 2)), ``episode`` (a number that the draws depend on, one for all rows or (B,)),
    and ``reset_mask`` ((B,) bool, the rows to reset). On the training split row i of an environment seeded s draws as
    a single environment seeded s + i does. On validation and test the draws that make up an episode depend on the seed
    s and the scene alone, so every batch sees the same.

    Args:
        images: where the scenes come from: a source, or the name of a module in ``envs.images``.
        sensor: how they are read; one 8 x 8 patch by default.
        reward: what a step is worth; 1 for a right answer by default. It is called once with zeros when the
            environment is built, and refused if it reads what this world does not give.
        num_envs: rows. The rollouts of one image are adjacent.
        num_glimpses: looks an episode, at least 1; where the agent may stop, at most.
        glimpses_per_answer: an answer is due after every so many looks, and at the end; None for at the end alone. An
            episode ends with the last answer that is due.
        answer: what an action answers with; None where the world asks for no answer.
        stop: whether actions may end the episode, with the answer they give.
        split: "train", "validation" or "test".
        rollouts_per_image: rows that see the same image; in training each from its own first location.
        first_location: "random" (uniform) or "center".
        context_size: pixels a side of the coarse view, or (height, width); None for none.
        output: "numpy", or "torch" for tensors on ``device`` without a copy.
        device: where images and gazes are held.
        autoreset_mode: what happens to a row that has ended. DISABLED: it freezes with reward 0, and once all have
            ended only ``reset`` helps. NEXT_STEP: its next action starts a new episode, with reward 0. SAME_STEP: the
            step that ends it returns the new episode's first look, and the last one in ``info["final_obs"]``.
        render_mode: "rgb_array" or None.

    Attributes:
        scenes: the split.
        classes: the names of all answers, or goals.
        questions: which answers are due when.
    """

    metadata = {
        "render_modes": ["rgb_array"],
        "render_fps": 2,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    _prepared: PreparedImages
    _facts: dict[str, Tensor]  # (B, ...) each
    _context: Tensor  # (B, C, h', w')
    _location: Tensor  # (B, 2)
    _look: Tensor  # (B,) the number of the present look, from 0
    _finished: Tensor  # (B,) bool
    _index: Tensor  # (B,) which scene
    _log_probs: Tensor  # (B, K) of the last answer

    def __init__(
        self,
        images: str | ImageSource = "glyphs",
        sensor: Sensor | None = None,
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
        output: Literal["numpy", "torch"] = "numpy",
        device: torch.device | str = "cpu",
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        for name, value in [
            ("num_envs", num_envs),
            ("num_glimpses", num_glimpses),
            ("glimpses_per_answer", 1 if glimpses_per_answer is None else glimpses_per_answer),
            ("rollouts_per_image", rollouts_per_image),
        ]:
            check_integer(f"env.{name}", value, 1)
        check_split(split)
        for name, choice, choices in [
            ("answer", answer, (None, *get_args(Answer))),
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

        self.sensor: Sensor = GlimpseSensor() if sensor is None else sensor
        if isinstance(sensor, type) or not hasattr(self.sensor, "prepare"):
            raise InputError(f"env.sensor must be a sensor, such as envs.GlimpseSensor(), got {sensor!r}.")
        self.reward = CorrectAnswer() if reward is None else reward
        self.num_envs = num_envs
        self.num_glimpses = num_glimpses
        self.answer = answer
        self.stop = stop
        self.split = split
        self.rollouts_per_image = rollouts_per_image
        self.first_location = first_location
        self.output = output
        self.device = torch.device(device)
        self.render_mode = render_mode
        self.scenes = load_split(resolve_source(images), split, self.device)
        self.classes = self.scenes.classes
        # An image that changes under one rollout's answers is another rollout's no more.
        self._moving = self.scenes if isinstance(self.scenes, DynamicScenes) else None
        self._rows_per_image = 1 if self._moving else rollouts_per_image
        rate = _MOVING_FPS if self._moving else self.metadata["render_fps"]
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode, "render_fps": rate}

        example = self._example()
        horizon = self._moving.horizon if self._moving else None
        self.answer_schedule = AnswerSchedule(
            example.annotations, horizon, answer, num_glimpses, glimpses_per_answer, stop
        )
        self.context_size = _check_context(context_size, example.images)
        self.single_observation_space = self._space_of_observations(example)
        self.single_action_space = self._space_of_actions()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        self._seed: Tensor | None = None  # (B,) one a row
        self._scene_seed: Tensor | None = None  # (B,) the same, but shared by all rows on validation and test
        self._judge = CheckedReward(self.reward, self._example_transition(example.annotations))

    # The public interface.

    @property
    def location(self) -> Tensor:
        """Where every gaze is: (B, 2) float32 in [-1, 1], on the environment's device."""
        if self._seed is None:
            raise InputError("Call reset before asking for the location or stepping.")
        return self._location

    @property
    def interface(self) -> dict[str, Any]:
        """What an agent must know of this world to be built for it, in plain values."""
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
        wishes = {name: readers[name](value) for name, value in options.items() if value is not None}
        rows = wishes.pop("reset_mask", None)
        if seed is not None or self._seed is None:
            self._set_seed(int(self.np_random.integers(2**31)) if seed is None else seed, rows)
        self._start(rows, **wishes)
        self._observation = self._observe()
        return self._hand_out(self._observation), self._info()

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], Any, Any, Any, dict[str, Any]]:
        """Moves every gaze and judges every answer.

        Returns:
            Observation, reward (B,), terminated (B,), truncated (B,), info.
        """
        if self._seed is None:
            raise InputError("Call reset before step.")
        action = self._read_actions(actions)
        active = ~self._finished
        if self.autoreset_mode is AutoresetMode.DISABLED and not active.any():
            raise InputError("Every row has ended: call reset before the next step.")
        if self._moving:
            self._advance(action["answer"], active)
        due, last = self.answer_schedule.ending(self._look, self._facts, action.get("stop"))
        due, last = due & active, last & active
        moving = active & ~last

        previous = self._location
        self._location = torch.where(moving[:, None], action["location"].clamp(-1, 1), previous)
        state = self._facts, self._look, self._location, previous, self._log_probs
        reward, components = self._judge(self._transition(action, *state, due, last), active)
        self._look = self._look + moving
        starting, self._finished = self._finished, self._finished | last
        terminated = self._finished
        if self.answer == "log_probs":
            self._log_probs = action["answer"]
            if self.answer_schedule.num_answers > 1:  # of the next question nothing has been said
                self._log_probs = torch.where(due[:, None], -math.log(len(self.classes)), self._log_probs)
        if self.render_mode:
            self._record(action, due)

        if self.autoreset_mode is AutoresetMode.NEXT_STEP and starting.any():
            terminated = last
            self._start(starting)
            moving = moving | starting
        if self._moving or moving.any():
            self._observation = self._observe()
        info, told = {}, active
        if self.autoreset_mode is AutoresetMode.SAME_STEP and last.any():
            info, told = self._final_info(last, components), ~last
            self._start(last)
            self._observation = self._observe()
        truncated = torch.zeros_like(terminated)
        results: tuple[Any, ...] = (reward, terminated, truncated)
        if self.output == "numpy":
            results = tuple(map(_numpy, results))
        return self._hand_out(self._observation), *results, self._info(components, told) | info

    def render(self) -> tuple[np.ndarray, ...] | None:
        """One (H, W, 3) uint8 picture a row: the image dimmed, windows lit, the path, what was asked and answered."""
        if self.render_mode is None:
            return None
        if self._seed is None:
            raise InputError("Call reset before render.")
        return tuple(map(self._picture, range(self.num_envs)))

    def _picture(self, row: int) -> np.ndarray:
        annotations = {name: value[row] for name, value in self._facts.items()}
        label, answer = "", None
        if "label" in annotations:
            numbers = annotations["label"].flatten().tolist()
            label = " ".join(self.classes[number] for number in numbers if number != IGNORE_INDEX)
        elif "goal" in annotations:
            label = f"find {self.classes[int(annotations['goal'])]}"
        given = self._given[row]
        if "label" in annotations and self.answer in ("label", "log_probs") and given:
            numbers = [int(each if self.answer == "label" else each.argmax()) for each in given]
            answer = " ".join(
                self.classes[number] for number in (numbers if annotations["label"].ndim else numbers[-1:])
            )
        return render_glimpses(
            self._images[row // self._rows_per_image],
            self._path[row, : int(self._look[row]) + 1],
            self.sensor,
            label=label,
            answer=answer,
            target=annotations.get("target"),
            named=given[-1] if self.answer == "box" and given else None,
            moving=self._moving is not None,
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
        # No scene of one split is one of another's, though their numbers and the seed are the same.
        scene = own if self.split == "train" else shared + (zlib.crc32(self.split.encode()) << 31)
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
            drawn = RowRandom(first[0][groups], first[1][groups]).integers("index", len(self.scenes))
        else:
            drawn = index[groups]
        if self.split == "train":
            row_random = RowRandom(self._seed[at], number[at])
            image_random = RowRandom(first[0][groups], first[1][groups])
        else:
            row_random = RowRandom(self._scene_seed[at], drawn.repeat_interleave(per_image))
            image_random = RowRandom(self._scene_seed[::per_image][groups], drawn)
        scene = self.scenes.draw(drawn, image_random)
        if location is not None:
            start = location[at].clamp(-1, 1)
        elif self.first_location == "center":
            start = torch.zeros(len(row_random.seed), 2, device=self.device)
        else:
            start = row_random.uniform("first_location", 2) * 2 - 1
        numbers = drawn.repeat_interleave(per_image)
        annotations = {name: value.repeat_interleave(per_image, 0) for name, value in scene.annotations.items()}
        images = scene.images.repeat_interleave(per_image, 0) if self._moving else scene.images

        if rows is None:
            self._location, self._index = start, numbers
            self._look = torch.zeros_like(self._seed)
            self._finished = torch.zeros_like(self._seed, dtype=torch.bool)
            self._log_probs = torch.full((self.num_envs, len(self.classes)), -math.log(len(self.classes)))
            self._log_probs = self._log_probs.to(self.device)
        else:
            self._location = self._location.index_copy(0, at, start)
            self._index = self._index.index_copy(0, at, numbers)
            self._look = self._look.masked_fill(rows, 0)
            self._finished = self._finished & ~rows
            self._log_probs = self._log_probs.masked_fill(rows[:, None], -math.log(len(self.classes)))
        self._show(Scene(images, annotations), None if rows is None else at)
        if self.render_mode:
            if rows is None:
                self._path = torch.zeros(self.num_envs, self.num_glimpses, 2, device=self.device)
                self._given: list[list[Tensor]] = [[]] * self.num_envs
            self._path[at, 0] = start
            for row in range(self.num_envs) if rows is None else at.tolist():
                self._given[row] = []

    def _show(self, scene: Scene, at: Tensor | None) -> None:
        """Puts images and facts before the rows ``at``, or all; facts are a row's, images perhaps of several rows."""
        prepared = self.sensor.prepare(scene.images)
        context = None
        if self.context_size:
            context = F.adaptive_avg_pool2d(scene.images, self.context_size)
            context = context.repeat_interleave(self._rows_per_image, 0)
        if at is None:
            self._prepared, self._facts = prepared, dict(scene.annotations)
            if context is not None:
                self._context = context
            if self.render_mode:
                self._images = scene.images.clone()
            return
        groups = at[:: self._rows_per_image] // self._rows_per_image
        for held, new in zip(self._prepared.maps, prepared.maps, strict=True):
            held[groups] = new  # never handed out
        self._facts = {name: held.index_copy(0, at, scene.annotations[name]) for name, held in self._facts.items()}
        if context is not None:
            self._context = self._context.index_copy(0, at, context)
        if self.render_mode:
            self._images[groups] = scene.images

    def _advance(self, answer: Tensor, active: Tensor) -> None:
        """Lets the scenes of the acting rows change under their answers."""
        assert self._moving is not None
        if bool(active.all()):
            self._show(self._moving.advance(self._facts, answer), None)
        else:
            at = active.nonzero().flatten()
            annotations = {name: value[at] for name, value in self._facts.items()}
            self._show(self._moving.advance(annotations, answer[at]), at)

    def _transition(
        self,
        action: Mapping[str, Tensor],
        annotations: Mapping[str, Tensor],
        look: Tensor,
        location: Tensor,
        previous_location: Tensor,
        previous_log_probs: Tensor,
        due: Tensor,
        last: Tensor,
    ) -> Transition:
        """What the reward is told of a step."""
        fields = {
            **annotations,
            "location": location,
            "previous_location": previous_location,
            "step": look,
            "stop": action.get("stop", torch.zeros_like(last)),
            "due": due,
            "last": last,
        }
        if self.answer:
            fields["answer"] = action["answer"]
        if self.answer == "log_probs":
            fields["answer"] = action["answer"].argmax(-1)
            fields |= {"log_probs": action["answer"], "previous_log_probs": previous_log_probs}
        if "label" in fields:
            fields["label"] = self.answer_schedule.label(look, annotations)
        return Transition(**fields)

    def _example_transition(self, annotations: Mapping[str, Tensor]) -> Transition:
        """A step like any other, of zeros but for the facts of one scene."""
        rows = self.num_envs
        location = torch.zeros(rows, 2, device=self.device)
        look = torch.zeros(rows, dtype=torch.int64, device=self.device)
        log_probs = torch.zeros(rows, len(self.classes), device=self.device)
        answer = {"box": location.new_zeros(rows, 4), "log_probs": log_probs}.get(self.answer or "", look)
        everywhere = {name: value.expand(rows, *value.shape[1:]) for name, value in annotations.items()}
        none = torch.zeros_like(look, dtype=torch.bool)
        return self._transition({"answer": answer}, everywhere, look, location, location, log_probs, none, none)

    def _observe(self) -> dict[str, Tensor]:
        observation = {
            "patches": self.sensor(self._prepared, self._location),
            "location": self._location,
            "step": self._look,
        }
        if "goal" in self._facts:
            observation["goal"] = self._facts["goal"]
        if self.context_size:
            observation["context"] = self._context
        return observation

    def _record(self, action: dict[str, Tensor], due: Tensor) -> None:
        self._path.scatter_(1, self._look[:, None, None].expand(-1, 1, 2), self._location[:, None])
        if self.answer:
            for row in due.nonzero().flatten().tolist():
                self._given[row].append(action["answer"][row].clone())

    # From and to the user.

    def _hand_out(self, observation: dict[str, Tensor]) -> dict[str, Any]:
        if self.output == "torch":
            return dict(observation)
        return {name: _numpy(value) for name, value in observation.items()}

    def _info(self, components: Mapping[str, Tensor] | None = None, told: Tensor | None = None) -> dict[str, Any]:
        """About every row's scene, and in the rows to be ``told`` what each part of the reward paid."""
        info = {"index": self._index} | {name: self._facts[name] for name in ("label",) if name in self._facts}
        present = {f"_{name}": torch.ones_like(self._finished) for name in info}
        if components and told is not None:
            info |= components
            present |= {f"_{name}": told for name in components}
        if self.output == "torch":
            return info
        return {name: _numpy(value) for name, value in (info | present).items()}

    def _final_info(self, last: Tensor, components: Mapping[str, Tensor]) -> dict[str, Any]:
        """The observation and info of rows that a same-step reset is about to replace, as Gymnasium lays them out."""
        info = self._info(components, last)
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

    def _read_actions(self, actions: Mapping[str, Any]) -> dict[str, Tensor]:
        check_parts(actions, self.single_action_space)
        action = {"location": self._read_location(actions["location"])}
        if self.answer == "label":
            action["answer"] = self._read_integers("action['answer']", actions["answer"], len(self.classes))
        elif self.answer:
            shape = (self.num_envs, 4 if self.answer == "box" else len(self.classes))
            infinite = self.answer == "log_probs"
            answer = read_floats("action['answer']", actions["answer"], shape, self.device, infinite)
            if infinite:
                if not answer.isfinite().any(1).all() or (answer == math.inf).any():
                    raise InputError("action['answer'] must give some class of every row more than none, and none all.")
                answer = answer.log_softmax(-1)
            action["answer"] = answer
        if self.stop:
            action["stop"] = read_flags("action['stop']", actions["stop"], self.num_envs, self.device)
        return action

    def _read_location(self, value: Any) -> Tensor:
        return read_floats("location", value, (self.num_envs, 2), self.device)

    def _read_index(self, value: Any) -> Tensor:
        images = self.num_envs // self.rollouts_per_image
        return read_integers("options['index']", value, images, len(self.scenes), self.device)

    def _read_episode(self, value: Any) -> Tensor:
        episode = read("options['episode']", value, self.device)
        if episode.ndim == 0:
            episode = episode.expand(self.num_envs)
        return self._read_integers("options['episode']", episode).clone()

    def _read_mask(self, value: Any) -> Tensor:
        mask = read("options['reset_mask']", value, self.device)
        if mask.shape != (self.num_envs,) or mask.dtype != torch.bool or not mask.any():
            raise InputError(f"options['reset_mask'] must be ({self.num_envs},) bool with at least one True.")
        if not hasattr(self, "_prepared"):
            raise InputError("The first reset must be of all rows, without a reset_mask.")
        by_image = mask.view(-1, self.rollouts_per_image)
        if not (by_image == by_image[:, :1]).all():
            raise InputError("options['reset_mask'] must reset all rollouts of an image or none.")
        return mask

    def _read_integers(self, name: str, value: Any, high: int | None = None) -> Tensor:
        return read_integers(name, value, self.num_envs, high, self.device)

    # What the parts say to one another when the environment is built.

    def _space_of_observations(self, example: Scene) -> spaces.Dict:
        """The space of what one row observes."""
        channels = example.images.shape[1]
        parts: dict[str, spaces.Space] = {
            "patches": spaces.Box(0, 1, self.sensor.patch_shape(channels), np.float32),
            "location": spaces.Box(-1, 1, (2,), np.float32),
            "step": spaces.Discrete(self.num_glimpses),
        }
        if "goal" in example.annotations:
            parts["goal"] = spaces.Discrete(len(self.classes))
        if self.context_size:
            parts["context"] = spaces.Box(0, 1, (channels, *self.context_size), np.float32)
        return spaces.Dict(parts)

    def _space_of_actions(self) -> spaces.Dict:
        """The space of what one row does."""
        parts: dict[str, spaces.Space] = {"location": spaces.Box(-1, 1, (2,), np.float32)}
        if self.answer == "label":
            parts["answer"] = spaces.Discrete(len(self.classes))
        elif self.answer == "log_probs":
            parts["answer"] = spaces.Box(-np.inf, 0, (len(self.classes),), np.float32)
        elif self.answer == "box":
            parts["answer"] = spaces.Box(-1, 1, (4,), np.float32)
        if self.stop:
            parts["stop"] = spaces.Discrete(2)
        return spaces.Dict(parts)

    def _example(self) -> Scene:
        """A scene like any other, for shapes and names."""
        zero = torch.zeros(1, dtype=torch.int64, device=self.device)
        return self.scenes.draw(zero, RowRandom(zero, zero))


def _check_context(size: int | Sequence[int] | None, images: Tensor) -> tuple[int, int] | None:
    """Height and width of the coarse view of such images (B, C, H, W)."""
    if size is None:
        return None
    pair = tuple(size) if isinstance(size, Sequence) else (size, size)
    if len(pair) != 2 or not all(isinstance(pixels, int) and pixels >= 1 for pixels in pair):
        raise InputError(f"env.context_size must be a whole number of at least 1, or [height, width], got {size!r}.")
    height, width = images.shape[-2:]
    if pair[0] > height or pair[1] > width:
        raise InputError(f"env.context_size {pair} is larger than the images, {(height, width)}.")
    return pair


def check_parts(action: Any, space: spaces.Space) -> None:
    """Refuses an action that is no dict of the parts of its space."""
    assert isinstance(space, spaces.Dict)
    if not isinstance(action, Mapping) or action.keys() != space.keys():
        named = sorted(action) if isinstance(action, Mapping) else type(action).__name__
        raise InputError(f"An action is a dict of {' and '.join(space)}, got {named}.")


def _numpy(values: Tensor) -> np.ndarray:
    """A copy, which the user may write into."""
    return values.cpu().numpy().copy()
