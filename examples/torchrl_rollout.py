"""Rollouts of ram/Glimpse-v0 in TorchRL, and its PPO on them (extra ``torchrl``).

    python examples/torchrl_rollout.py --batches 60

TorchRL takes dicts of actions: ``location``, here a cell of a grid, and ``answer``, a class, have a distribution each.
It keeps observations and actions in one dict, so that the location that was observed needs another name, ``gaze``.
"""

import argparse
import time

import gymnasium
import torch
from tensordict.nn import CompositeDistribution, TensorDictModule, set_composite_lp_aggregate
from torch import Tensor, nn
from torch.distributions import Categorical
from torchrl.envs import EnvBase, GymWrapper, RenameTransform, TransformedEnv, check_env_specs
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from envs import GlimpseSensor, Grid, TransformAction
from envs.images.glyphs import Glyphs

SEEN = ["patches", "gaze", "step"]
CELLS, CLASSES, LOOKS, PATCH, WIDTH = 9, 10, 2, 16, 128


def make_env(seed: int) -> EnvBase:
    """Plain digits, each seen twice in a window as large as the image."""
    env = gymnasium.make(
        "envs:ram/Glimpse-v0",
        images=Glyphs(size=16, num_train=2000, height=(0.8, 0.8), rotation=0, shear=0, stretch=0, bend=0, noise=0),
        sensor=GlimpseSensor(PATCH),
        num_glimpses=LOOKS,
        first_location="center",
    )
    env = GymWrapper(TransformAction(env, Grid(rows=3, columns=3)), categorical_action_encoding=True)
    env = TransformedEnv(env, RenameTransform(["location"], ["gaze"]))
    env.set_seed(seed)
    return env


class Look(nn.Module):
    """Reads a look: its patch, its place, its number."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        inputs = PATCH**2 + 2 + LOOKS
        self.layers = nn.Sequential(
            nn.Linear(inputs, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, outputs)
        )

    def forward(self, patches: Tensor, gaze: Tensor, step: Tensor) -> Tensor:
        """(..., scales, C, h, w), (..., 2), (...,) -> (..., outputs)."""
        return self.layers(torch.cat([patches.flatten(-4), gaze, nn.functional.one_hot(step, LOOKS)], dim=-1))


class Choices(Look):
    """The logits of the two parts of an action."""

    def forward(self, patches: Tensor, gaze: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """As :class:`Look` -> (..., cells), (..., classes)."""
        return super().forward(patches, gaze, step).split([CELLS, CLASSES], dim=-1)


def main() -> None:
    """Reads the options and trains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--steps", type=int, default=512, help="of a batch")
    parser.add_argument("--epochs", type=int, default=8, help="passes over a batch")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # the matrices are small
    set_composite_lp_aggregate(False).set()  # keep a log-probability for each part of an action

    env = make_env(options.seed)
    check_env_specs(env)
    actor = ProbabilisticActor(
        TensorDictModule(
            Choices(CELLS + CLASSES), SEEN, [("params", "location", "logits"), ("params", "answer", "logits")]
        ),
        in_keys=["params"],
        out_keys=["location", "answer"],
        distribution_class=CompositeDistribution,
        distribution_kwargs={"distribution_map": {"location": Categorical, "answer": Categorical}},
        return_log_prob=True,
    )
    critic = ValueOperator(Look(1), in_keys=SEEN)
    advantage = GAE(gamma=1.0, lmbda=1.0, value_network=critic)
    loss = ClipPPOLoss(actor, critic, entropy_coeff=0.01, normalize_advantage=True)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3)

    start = time.perf_counter()
    for number in range(1, options.batches + 1):
        with torch.no_grad():
            batch = env.rollout(options.steps, actor, break_when_any_done=False)
            advantage(batch)
        for _ in range(options.epochs):
            for rows in torch.randperm(len(batch)).split(128):
                losses = loss(batch[rows])
                total = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
                optimizer.zero_grad()
                total.backward()
                optimizer.step()
        if number % 5 == 0:
            accuracy = 100 * batch["next", "reward"][batch["next", "done"]].mean().item()
            print(
                f"{number * options.steps:6d} steps  accuracy {accuracy:5.1f} %  {time.perf_counter() - start:4.0f} s"
            )


if __name__ == "__main__":
    main()
