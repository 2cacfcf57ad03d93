"""Catch: the path of the ball, the paddle, caught balls, and the environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envs import CatchEnv, CatchVectorEnv, GlimpseVectorEnv, InputError
from envs.catch import MOVES, Catch, CatchScenes, Caught
from envs.images import glyphs
from envs.random import RowRandom
from tests.envs.helpers import DISABLED, NEXT_STEP, SAME_STEP, actions, assert_same, row

LEFT, STAY, RIGHT = range(3)
GLYPHS = glyphs.Glyphs(size=20, num_train=20, num_validation=20, num_test=20)
SMALL = Catch(size=6, num_train=10, num_validation=20, num_test=20)
Annotations = dict[str, Tensor]


def game(column: float, speed: float, paddle: int = 0) -> Annotations:
    """The annotations of one game at its start."""
    ball = torch.tensor([[column, 0.0]])
    return {"ball": ball, "speed": torch.tensor([speed]), "paddle": torch.tensor([paddle])}


def play(games: CatchScenes, annotations: Annotations, moves: list[int]) -> tuple[list[Tensor], list[Annotations]]:
    """The screens (size, size) and annotations after each move."""
    screens, history = [], []
    for move in moves:
        scene = games.advance(annotations, torch.tensor([move]))
        annotations = dict(scene.annotations)
        screens.append(scene.images[0, 0])
        history.append(annotations)
    return screens, history


def ball_path(size: int, column: float, speed: float) -> list[tuple[float, float]]:
    """(column, row) of a ball after every answer."""
    _, annotations = play(Catch(size, paddle_width=1).load("test"), game(column, speed), [STAY] * (size - 1))
    return [tuple(each["ball"][0].tolist()) for each in annotations]


def catch(**options: Any) -> CatchVectorEnv:
    return CatchVectorEnv(**{"images": SMALL, "num_envs": 4} | options)


# The game.


def test_the_ball_falls_one_row_with_every_answer() -> None:
    assert ball_path(5, 1.0, 0.25) == [(1.25, 1), (1.5, 2), (1.75, 3), (2.0, 4)]


@pytest.mark.parametrize(
    ("column", "speed", "columns"),
    [
        (0.0, -1.0, [1.0, 2.0, 3.0, 4.0]),
        (4.0, 1.0, [3.0, 2.0, 1.0, 0.0]),
        (3.0, 0.75, [3.75, 3.5, 2.75, 2.0]),  # 3.75 + 0.75 is half a pixel beyond 4
        (1.0, -0.75, [0.25, 0.5, 1.25, 2.0]),
        (3.0, 1.0, [4.0, 3.0, 2.0, 1.0]),  # touches the last column and turns
        (2.0, 0.0, [2.0, 2.0, 2.0, 2.0]),
    ],
)
def test_the_ball_is_reflected_at_the_sides(column: float, speed: float, columns: list[float]) -> None:
    assert [x for x, _ in ball_path(5, column, speed)] == columns


@settings(deadline=None)
@given(st.integers(2, 30), st.data())
def test_the_path_is_a_straight_line_reflected_at_the_sides(size: int, data: st.DataObject) -> None:
    column, speed = data.draw(st.integers(0, size - 1)), data.draw(st.floats(-1, 1, width=32))
    wide = 2 * (size - 1)
    for t, (x, y) in enumerate(ball_path(size, column, speed), start=1):
        unfolded = (column + t * speed) % wide
        assert x == pytest.approx(min(unfolded, wide - unfolded), abs=1e-4)
        assert 0 <= x <= size - 1
        assert y == t


def test_the_screen_shows_ball_and_paddle() -> None:
    games = Catch(size=4).load("train")
    screens, _ = play(games, game(column=1, speed=0.5, paddle=2), [LEFT, LEFT, STAY])
    shown = [["".join(".#"[int(pixel)] for pixel in line) for line in screen] for screen in screens]
    assert shown == [
        ["....", "..#.", "....", ".##."],  # column 1.5 is shown in 2
        ["....", "....", "..#.", "##.."],
        ["....", "....", "....", "##.#"],
    ]


def test_the_paddle_stops_at_the_border() -> None:
    games = Catch(size=8, paddle_width=3).load("train")
    _, annotations = play(games, game(0, 0, paddle=1), [LEFT, LEFT, STAY] + [RIGHT] * 4)
    assert [int(each["paddle"]) for each in annotations] == [0, 0, 0, 1, 2, 3, 4]
    _, annotations = play(games, game(0, 0, paddle=4), [RIGHT] * 3)
    assert [int(each["paddle"]) for each in annotations] == [5, 5, 5]


@pytest.mark.parametrize("paddle", range(5))
def test_the_ball_is_caught_where_it_lands_on_the_paddle(paddle: int) -> None:
    games = Catch(size=6).load("train")
    screens, annotations = play(games, game(column=2, speed=0.125, paddle=paddle), [STAY] * 5)  # lands at 2.625
    assert [bool(each["over"]) for each in annotations] == [False] * 4 + [True]
    assert [bool(each["caught"]) for each in annotations] == [False] * 4 + [paddle in (2, 3)]
    assert screens[-1].sum() == (2 if paddle in (2, 3) else 3)


def test_size_and_paddle_width_are_options() -> None:
    env = catch(images=Catch(size=9, paddle_width=4), num_envs=3)
    env.reset(seed=0)
    assert env.num_glimpses == 8
    screens = env.scenes.draw(torch.arange(50), RowRandom(torch.arange(50), torch.arange(50))).images
    assert screens.shape == (50, 1, 9, 9)
    assert (screens[:, 0, 0].sum(1) == 1).all()
    assert (screens[:, 0, 1:8] == 0).all()
    assert (screens[:, 0, 8].sum(1) == 4).all()


def test_first_column_speed_and_paddle_are_uniform_and_independent() -> None:
    count = torch.arange(22 * 500)
    annotations = Catch().load("test").draw(count, RowRandom(torch.zeros_like(count), count)).annotations
    ball, speed, paddle = annotations["ball"], annotations["speed"], annotations["paddle"]
    assert not (ball[:, 1].any() or annotations["over"].any() or annotations["caught"].any())
    for values, high in [(ball[:, 0].long(), 24), (paddle, 23), (((speed + 1) * 12).long(), 24)]:
        share = values.bincount(minlength=high) / len(count)
        assert len(share) == high
        assert ((share - 1 / high).abs() < 5 * (1 / high / len(count)) ** 0.5).all()  # five standard deviations
    assert speed.min() >= -1 and speed.max() < 1
    together = torch.stack([ball[:, 0], speed, paddle.float()]).corrcoef() - torch.eye(3)
    assert together.abs().max() < 5 / len(count) ** 0.5


# Policies.


def caught_share(policy: Callable[[Annotations], Tensor], count: int = 10_000) -> float:
    games = Catch(num_test=count).load("test")
    index = torch.arange(count)
    annotations = dict(games.draw(index, RowRandom(torch.zeros_like(index), index)).annotations)
    for _ in range(games.horizon):
        assert not annotations["over"].any()
        annotations = dict(games.advance(annotations, policy(annotations)).annotations)
    assert annotations["over"].all()
    return float(annotations["caught"].float().mean())


def towards(column: Tensor, paddle: Tensor) -> Tensor:
    """The move of a paddle of two pixels towards a column."""
    pixel = (column + 0.5).long()
    return torch.where(pixel < paddle, LEFT, torch.where(pixel > paddle + 1, RIGHT, STAY))


def test_a_policy_with_the_landing_column_catches_every_ball() -> None:
    def oracle(annotations: Annotations) -> Tensor:
        column, row = annotations["ball"].unbind(1)
        unfolded = (column + annotations["speed"] * (23 - row)) % 46
        return towards(torch.minimum(unfolded, 46 - unfolded), annotations["paddle"])

    assert caught_share(oracle) > 0.9995  # its rounding may differ where a ball lands between two pixels


def test_a_resting_paddle_catches_in_proportion_to_its_width() -> None:
    share = caught_share(lambda annotations: torch.full_like(annotations["paddle"], STAY))
    assert share == pytest.approx(2 / 24, abs=5 * 0.0028)  # five standard deviations


# The environment.


@pytest.mark.filterwarnings("error")
def test_the_environment_passes_the_checker_of_gymnasium() -> None:
    check_env(gymnasium.make("envs:ram/Catch-v0", render_mode="rgb_array").unwrapped)


def test_the_registered_environment_has_the_sizes_of_the_paper() -> None:
    env = gymnasium.make("envs:ram/Catch-v0")
    assert isinstance(env.unwrapped, CatchEnv)
    observation, _ = env.reset(seed=0)
    assert observation["patches"].shape == (3, 1, 6, 6)
    assert observation.keys() == {"patches", "location", "step"}
    action = {"location": np.zeros(2, np.float32), "answer": STAY}
    ends = [env.step(action)[2] for _ in range(23)]
    assert ends == [False] * 22 + [True]
    env_vec = gymnasium.make_vec("envs:ram/Catch-v0", num_envs=3)
    assert isinstance(env_vec.unwrapped, CatchVectorEnv)
    assert env_vec.unwrapped.classes == MOVES


@pytest.mark.parametrize("make", [CatchEnv, CatchVectorEnv])
@pytest.mark.parametrize("option", ["sensor", "reward", "num_glimpses", "glimpses_per_answer"])
def test_none_selects_the_default_of_the_game(make: Any, option: str) -> None:
    env, default = make(images=SMALL, **{option: None}), make(images=SMALL)
    assert env.observation_space == default.observation_space
    assert env.observation_space["patches"].shape[-4:] == (3, 1, 6, 6)
    core, expected = (getattr(each, "vector_env", each) for each in (env, default))
    assert core.reward == expected.reward == Caught()
    assert core.num_glimpses == expected.num_glimpses == 5
    assert core.answer_schedule.glimpses_per_answer == 1


@pytest.mark.parametrize("num_glimpses", [5, 6, 9])
def test_an_episode_ends_when_the_ball_reaches_the_bottom_row(num_glimpses: int) -> None:
    env = catch(num_glimpses=num_glimpses, autoreset_mode=DISABLED)
    env.reset(seed=0)
    ends = [env.step(actions(4, step))[2].tolist() for step in range(5)]
    assert ends == [[False] * 4] * 4 + [[True] * 4]
    with pytest.raises(InputError, match="call reset"):
        env.step(actions(4))


def test_the_reward_is_1_at_the_end_for_a_caught_ball() -> None:
    env = catch(num_envs=50, output="torch", autoreset_mode=DISABLED)
    env.reset(seed=0)
    rewards = [env.step(actions(50, step))[1] for step in range(5)]
    assert not torch.stack(rewards[:4]).any()
    column, paddle = env._shown.annotations["ball"][:, 0], env._shown.annotations["paddle"]
    pixel = (column + 0.5).floor()
    assert torch.equal(rewards[4], ((pixel == paddle) | (pixel == paddle + 1)).float())
    assert 0 < rewards[4].sum() < 50


def test_patches_show_the_current_screen() -> None:
    env = catch(output="torch", autoreset_mode=DISABLED)
    observation, _ = env.reset(seed=0)

    def screen() -> Tensor:
        return env.scenes._scene(*(env._shown.annotations[name] for name in ("ball", "speed", "paddle"))).images

    for step in range(5):
        before = screen()
        assert torch.equal(observation["patches"], env.sensor(before, observation["location"]))
        observation, *_ = env.step(actions(4, step))
        assert not torch.equal(before, screen())


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP, DISABLED])
def test_rows_equal_sync_vector_env(mode: AutoresetMode) -> None:
    ours = catch(autoreset_mode=mode)
    reference = SyncVectorEnv([lambda: CatchEnv(images=SMALL)] * 4, autoreset_mode=mode)
    assert_same(*(env.reset(seed=7)[0] for env in (ours, reference)))
    total = 0
    for step in range(20):
        if step in (2, 9):  # the rows go out of step
            mask = np.array([True, False, False, step == 2])
            left, right = (env.reset(options={"reset_mask": mask.copy()})[0] for env in (ours, reference))
            assert_same(left, right)
        results = [env.step(actions(4, step)) for env in (ours, reference)]
        for left, right in list(zip(*results, strict=True))[:4]:
            assert_same(left, right)
        total += int(results[0][1].sum())
        ended = results[0][2]
        if mode is SAME_STEP and ended.any():
            finals = [result[4]["final_obs"] for result in results]
            for number in np.flatnonzero(ended):
                assert_same(finals[0][number], finals[1][number])
        if mode is DISABLED and ended.any():
            assert_same(*(env.reset(options={"reset_mask": ended.copy()})[0] for env in (ours, reference)))
    assert total > 0


def test_an_ended_game_is_frozen() -> None:
    env = catch(autoreset_mode=DISABLED)
    env.reset(seed=0)
    env.step(actions(4, 0))
    env.reset(options={"reset_mask": [True, False, False, False]})
    for step in range(4):
        before, _, ended, _, _ = env.step(actions(4, step))
    assert ended.tolist() == [False, True, True, True]
    after, reward, ended, _, _ = env.step(actions(4, 9))
    assert ended.all()
    assert not reward[1:].any()
    for number in (1, 2, 3):
        assert_same(row(before, number), row(after, number))


def episode(env: CatchVectorEnv, **reset: Any) -> list[Any]:
    """All patches and rewards of a game in which the paddle rests."""
    stay = {"location": np.zeros((env.num_envs, 2), np.float32), "answer": np.full(env.num_envs, STAY)}
    results = [env.reset(**reset)[0]["patches"]]
    for _ in range(env.num_glimpses):
        observation, reward, *_ = env.step(stay)
        results += [observation["patches"], reward]
    return results


def test_the_same_seed_gives_the_same_game() -> None:
    first, again = (episode(catch(autoreset_mode=DISABLED), seed=5) for _ in range(2))
    for left, right in zip(first, again, strict=True):
        np.testing.assert_array_equal(left, right)


def start(split: Any, seed: int, index: list[int], episode: int = 0) -> list[tuple[float, ...]]:
    """The first (column, speed, paddle) of the games with the given indices."""
    env = CatchVectorEnv(split=split, num_envs=len(index), output="torch")
    env.reset(seed=seed, options={"index": index, "episode": episode})
    annotations = env._shown.annotations
    each = [annotations["ball"][:, 0], annotations["speed"], annotations["paddle"]]
    return list(zip(*(values.tolist() for values in each), strict=True))


@pytest.mark.parametrize("split", ["validation", "test"])
def test_evaluation_games_depend_on_seed_and_index_alone(split: str) -> None:
    whole = start(split, 3, list(range(8)))
    assert start(split, 3, [5, 2, 2], episode=4) == [whole[5], whole[2], whole[2]]
    assert len(set(whole)) == 8
    assert not set(start(split, 4, list(range(8)))) & set(whole)


def test_training_games_differ_between_episodes() -> None:
    first, later = start("train", 3, [0] * 8), start("train", 3, [0] * 8, episode=1)
    assert len({*first, *later}) == 16


def test_splits_share_no_game() -> None:
    # Training row r draws from (seed + r, episode), game i from (seed, i): without a key of the split, equal in row 0.
    train = [start("train", 3, [0], episode=number)[0] for number in range(8)]
    others = [start(split, 3, list(range(8))) for split in ("validation", "test")]
    assert len({*train, *others[0], *others[1]}) == 24


def test_rollouts_start_the_same_game_and_move_independently() -> None:
    env = catch(rollouts_per_image=2, output="torch", autoreset_mode=DISABLED)
    env.reset(seed=0, options={"location": torch.zeros(4, 2)})
    annotations = env._shown.annotations
    for name in ("ball", "speed", "paddle"):
        assert torch.equal(annotations[name][::2], annotations[name][1::2])
    paddle = annotations["paddle"]
    env.step({"location": torch.zeros(4, 2), "answer": torch.tensor([LEFT, RIGHT] * 2)})
    assert torch.equal(env._shown.annotations["ball"][::2], env._shown.annotations["ball"][1::2])
    moved = (paddle + torch.tensor([-1, 1] * 2)).clamp(0, 4)
    assert torch.equal(env._shown.annotations["paddle"], moved)


def test_the_picture_changes_with_every_step() -> None:
    env = CatchEnv(images=SMALL, render_mode="rgb_array")
    env.reset(seed=0, options={"location": np.zeros(2, np.float32)})
    action = {"location": np.zeros(2, np.float32), "answer": STAY}
    pictures = [env.render()]
    for _ in range(5):
        env.step(action)
        pictures.append(env.render())
    assert len({picture.tobytes() for picture in pictures if picture is not None}) == 6


# Errors.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 1}, r"scenes\.size must be a whole number of at least 2, got 1"),
        ({"paddle_width": 0}, r"scenes\.paddle_width must be in 1 \.\. scenes\.size \(24\), got 0"),
        ({"paddle_width": 25}, r"scenes\.paddle_width must be in 1"),
        ({"num_train": 0}, r"scenes\.num_train must be a whole number of at least 1"),
        ({"num_validation": -1}, r"scenes\.num_validation must be a whole number of at least 1"),
        ({"num_test": 0}, r"scenes\.num_test must be a whole number of at least 1"),
    ],
)
def test_invalid_sizes_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Catch(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_glimpses": 4}, r"end after 5 answers: set env\.num_glimpses to at least 5, not 4"),
        ({"glimpses_per_answer": 5}, r"set env\.glimpses_per_answer=1"),
        ({"answer": "log_probs"}, r"set env\.answer=label, not log_probs"),
        ({"answer": None}, r"set env\.answer=label, not None"),
        ({"answer": "box"}, r"env\.answer=box needs scenes with a target object"),
        ({"images": "glyphs"}, r"Catch needs an envs\.catch\.Catch as images, got 'glyphs'"),
    ],
)
def test_env_options_that_do_not_fit_the_game_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        catch(**options)


def test_the_reward_caught_needs_catch() -> None:
    message = r"Caught does not fit this environment: transition\.caught is not available here \(choose scenes=catch\)"
    with pytest.raises(InputError, match=message):
        GlimpseVectorEnv(images=GLYPHS, reward=Caught())


def test_dynamic_scenes_are_rendered_faster() -> None:
    static, dynamic = GlimpseVectorEnv("glyphs", split="validation"), CatchVectorEnv()
    assert dynamic.metadata["render_fps"] > static.metadata["render_fps"]
    assert CatchEnv().metadata["render_fps"] == dynamic.metadata["render_fps"]
