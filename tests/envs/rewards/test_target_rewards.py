"""HitTarget, TargetDistance and BoxOverlap: values worked out by hand, and an episode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from envs.rewards import Transition
from envs.rewards.targets import BoxOverlap, HitTarget, TargetDistance
from envs.rewards.weighted_sum import WeightedSum
from tests.envs.rewards.helpers import BOX, DISABLED, TARGETS, assert_pays, flags, vector_env

# Inside; on a corner; outside on one axis; on the border; inside, but at the last step; outside at the last step.
LOCATIONS = Transition(
    location=torch.tensor([[0.0, 0.25], [-0.5, 0.0], [0.0, 0.75], [0.5, 0.5], [0.0, 0.25], [0.0, -0.25]]),
    target=torch.tensor([[-0.5, 0.0, 0.5, 0.5]]).expand(6, 4),
    last=flags(0, 0, 0, 0, 1, 1),
)


def test_hit_target_rewards_every_chosen_location_in_the_box() -> None:
    assert_pays(HitTarget(), LOCATIONS, [1, 1, 0, 1, 0, 0])


def test_hit_target_can_reward_the_final_location_only() -> None:
    assert_pays(HitTarget(every_glimpse=False), LOCATIONS, [0, 0, 0, 0, 1, 0])


def test_a_location_just_outside_the_box_is_no_hit() -> None:
    outside = np.nextafter(np.float32(0.5), np.float32(1)).item()
    transition = Transition(
        location=torch.tensor([[outside, 0.5], [0.5, outside]]),
        target=torch.tensor([[0.0, 0, 0.5, 0.5]] * 2),
        last=flags(0, 0),
    )
    assert_pays(HitTarget(), transition, [0, 0])


def test_target_distance_is_the_euclidean_distance_to_the_center() -> None:
    transition = Transition(
        location=torch.tensor([[0.3, 0.65], [0.0, 0.25], [0.3, 0.65]]),
        target=torch.tensor([[-0.5, 0.0, 0.5, 0.5]] * 3),  # its center is (0, 0.25)
        last=flags(0, 0, 1),
    )
    assert_pays(TargetDistance(), transition, [-0.5, 0, 0])


@pytest.mark.parametrize(
    ("answer", "target", "overlap"),
    [
        (BOX, BOX, 1),
        ((0.0, 0.0, 1.0, 1.0), BOX, 0.25 / 1.75),
        ((-1.0, -1.0, 1.0, 1.0), BOX, 0.25),
        ((-0.5, -0.25, 0.5, 0.25), BOX, 0.5),
        ((-0.5, -0.5, 0.0, 0.5), BOX, 0.5),
        ((0.5, -0.5, 1.0, 0.5), BOX, 0),  # a common side
        ((0.6, 0.6, 1.0, 1.0), BOX, 0),
        ((-1.0, 0.6, 1.0, 1.0), BOX, 0),  # disjoint on one axis only
        ((0.0, 0.0, 0.0, 0.0), BOX, 0),
        ((-0.5, 0.0, 0.5, 0.0), BOX, 0),
        ((0.5, -0.5, -0.5, 0.5), BOX, 0),
        ((0.5, 0.5, -0.5, -0.5), BOX, 0),
        ((0.5, 0.5, -0.5, -0.5), (0.5, 0.5, -0.5, -0.5), 0),
        ((0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0), 0),
    ],
)
def test_box_overlap_is_the_intersection_over_union(answer: Any, target: Any, overlap: float) -> None:
    boxes = Transition(answer=torch.tensor([answer] * 2), target=torch.tensor([target] * 2), due=flags(1, 0))
    assert_pays(BoxOverlap(), boxes, [overlap, 0])


corner = st.integers(0, 6)


@given(answer=st.tuples(*[corner] * 4), target=st.tuples(*[corner] * 4))
def test_box_overlap_counts_the_cells_of_boxes_on_a_grid(answer: tuple[int, ...], target: tuple[int, ...]) -> None:
    first, second = ({(x, y) for x in range(box[0], box[2]) for y in range(box[1], box[3])} for box in (answer, target))
    boxes = Transition(answer=torch.tensor([answer]) / 4 - 0.75, target=torch.tensor([target]) / 4 - 0.75, due=flags(1))
    assert_pays(BoxOverlap(), boxes, [len(first & second) / max(len(first | second), 1)])


def test_the_rewards_of_an_episode_match_values_worked_out_by_hand() -> None:
    env = vector_env(
        WeightedSum(
            {"hit": HitTarget(), "end": HitTarget(every_glimpse=False), "distance": TargetDistance()},
            {"distance": 10.0},
        ),
        images=TARGETS,
        num_envs=1,
        answer=None,
        autoreset_mode=DISABLED,
    )
    env.reset(seed=0, options={"location": [[0.0, 0.0]]})
    locations = [(0.6, 0.8), (0.3, 0.4), (1.0, 1.0)]  # the last one is ignored
    components = []
    for location in locations:
        _, reward, _, _, info = env.step({"location": np.array([location], np.float32)})
        components.append([float(info[f"reward/{name}"][0]) for name in ("hit", "end", "distance")])
        assert reward[0] == pytest.approx(sum(components[-1]))
    np.testing.assert_allclose(components, [[0, 0, -10], [1, 0, -5], [0, 1, 0]], rtol=1e-6)
