"""Rollouts of ram/Glimpse-v0 in TorchRL, and training with its PPO loss (extra ``torchrl``).

    python examples/torchrl_rollout.py --batches 60

TorchRL supports dict actions: ``location``, here a cell of a grid, and ``answer``, a class, have one distribution each.
TorchRL keeps observations and actions in one dict, so the observed location is renamed to ``observed_location``.
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

from envs import GlimpseSensor, GridAction
from envs.images.glyphs import Glyphs

OBSERVATION_KEYS = ["patches", "observed_location", "step"]
NUM_CELLS, NUM_CLASSES, NUM_GLIMPSES, PATCH_SIZE, WIDTH = 9, 10, 2, 16, 128


def make_env(seed: int) -> EnvBase:
    """Returns an environment of undistorted digits, with a window as large as the image."""
    env = gymnasium.make(
        "envs:ram/Glimpse-v0",
        images=Glyphs(size=16, num_train=2000, height=(0.8, 0.8), rotation=0, shear=0, stretch=0, elastic=0, noise=0),
        sensor=GlimpseSensor(PATCH_SIZE),
        num_glimpses=NUM_GLIMPSES,
        first_location="center",
    )
    env = GymWrapper(GridAction(env, rows=3, columns=3), categorical_action_encoding=True)
    env = TransformedEnv(env, RenameTransform(["location"], ["observed_location"]))
    env.set_seed(seed)
    return env


class ObservationNetwork(nn.Module):
    """A multilayer perceptron over patch, location and step of an observation."""

    def __init__(self, num_outputs: int) -> None:
        super().__init__()
        num_inputs = PATCH_SIZE**2 + 2 + NUM_GLIMPSES
        self.layers = nn.Sequential(
            nn.Linear(num_inputs, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, num_outputs)
        )

    def forward(self, patches: Tensor, location: Tensor, step: Tensor) -> Tensor:
        """Returns (..., num_outputs) for patches (..., scales, C, h, w), location (..., 2) and step (...,)."""
        step = nn.functional.one_hot(step, NUM_GLIMPSES)
        return self.layers(torch.cat([patches.flatten(-4), location, step], dim=-1))


class PolicyNetwork(ObservationNetwork):
    """The logits of both parts of an action."""

    def forward(self, patches: Tensor, location: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the logits of the cells (..., cells) and of the classes (..., classes)."""
        return super().forward(patches, location, step).split([NUM_CELLS, NUM_CLASSES], dim=-1)


def make_actor() -> ProbabilisticActor:
    """Returns the policy, with a categorical distribution for each part of an action."""
    logits = [("params", "location", "logits"), ("params", "answer", "logits")]
    return ProbabilisticActor(
        TensorDictModule(PolicyNetwork(NUM_CELLS + NUM_CLASSES), OBSERVATION_KEYS, logits),
        in_keys=["params"],
        out_keys=["location", "answer"],
        distribution_class=CompositeDistribution,
        distribution_kwargs={"distribution_map": {"location": Categorical, "answer": Categorical}},
        return_log_prob=True,
    )


def main() -> None:
    """Parses the options and trains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--steps", type=int, default=512, help="steps of a batch")
    parser.add_argument("--epochs", type=int, default=8, help="passes over a batch")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # faster for small matrices
    set_composite_lp_aggregate(False).set()  # one log-probability for each part of an action

    env = make_env(options.seed)
    check_env_specs(env)
    actor = make_actor()
    critic = ValueOperator(ObservationNetwork(1), in_keys=OBSERVATION_KEYS)
    advantage = GAE(gamma=1.0, lmbda=1.0, value_network=critic)
    loss = ClipPPOLoss(actor, critic, entropy_coeff=0.01, normalize_advantage=True)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3)

    start = time.perf_counter()
    for batch_number in range(1, options.batches + 1):
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
        if batch_number % 5 == 0:
            accuracy = 100 * batch["next", "reward"][batch["next", "done"]].mean().item()
            steps, seconds = batch_number * options.steps, time.perf_counter() - start
            print(f"{steps:6d} steps  accuracy {accuracy:5.1f} %  {seconds:4.0f} s")


if __name__ == "__main__":
    main()
