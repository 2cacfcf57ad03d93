"""PPO (Schulman et al. 2017) on one page: a recurrent agent learns where to look and what to answer.

    python examples/ppo_single_page.py --num_iterations 300 --num_glimpses 4

The agent never receives the label: it learns from a reward of 1 for a correct answer alone. Every row of the
environment plays one whole episode at a time, so a rollout has the shape (T looks, B rows). The tensors of the
environment are used without a copy.
"""

import argparse
import time
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from envs import GlimpseSensor, GlimpseVectorEnv
from envs.images.glyphs import Glyphs


@dataclass
class Options:
    """The options of the command line."""

    seed: int = 0
    num_envs: int = 512
    num_glimpses: int = 3
    num_iterations: int = 200  # of one episode a row
    num_epochs: int = 4  # passes over a rollout
    num_minibatches: int = 4
    learning_rate: float = 2e-3  # at the start; it decreases linearly to 0
    clip: float = 0.2  # of the probability ratio
    std: float = 0.15  # of the Gaussian over locations
    entropy_weight: float = 0.01
    value_weight: float = 0.5
    max_grad_norm: float = 0.5


class Agent(nn.Module):
    """A GRU over looks with three heads: the next location, the answer, and the value (expected return)."""

    def __init__(self, patch_size: int, num_classes: int, std: float, width: int = 128) -> None:
        super().__init__()
        self.std = std
        self.glimpse = nn.Sequential(nn.Linear(patch_size + 2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.core = nn.GRU(width, width)
        self.location = nn.Linear(width, 2)
        self.answer = nn.Linear(width, num_classes)
        self.value = nn.Linear(width, 1)

    def forward(
        self, patches: Tensor, location: Tensor, state: Tensor | None = None
    ) -> tuple[Normal, Categorical, Tensor, Tensor]:
        """Returns distributions of locations (T, B, 2) and answers (T, B), values (T, B) and the state (1, B, width).

        Args:
            patches: (T, B, scales, C, h, w).
            location: (T, B, 2), of the patches.
            state: (1, B, width) after the look before, None at the start.
        """
        features, state = self.core(self.glimpse(torch.cat([patches.flatten(2), location], dim=2)), state)
        next_location = Normal(torch.tanh(self.location(features)), self.std)
        return next_location, Categorical(logits=self.answer(features)), self.value(features)[..., 0], state


@dataclass
class Rollout:
    """One episode of every row; the first dimensions of all tensors are (T, B)."""

    patches: Tensor
    location: Tensor  # of the patches
    next_location: Tensor  # the action
    answer: Tensor  # the action
    log_prob: Tensor  # of the action, as masked_log_prob defines it
    value: Tensor
    returns: Tensor  # the sum of the rewards from the action on, not discounted


def masked_log_prob(location: Normal, answer: Categorical, next_location: Tensor, chosen: Tensor) -> Tensor:
    """Returns the log-probability of actions (T, B) without the parts that have no effect.

    No look follows the last location, and only the last answer is rewarded.
    """
    log_prob = location.log_prob(next_location).sum(-1)
    return torch.cat([log_prob[:-1], answer.log_prob(chosen)[-1:]])


@torch.no_grad()
def collect_rollout(env: GlimpseVectorEnv, agent: Agent) -> Rollout:
    """Plays one episode in every row."""
    steps: list[tuple[Tensor, ...]] = []
    state = None
    observation, _ = env.reset()
    for _ in range(env.num_glimpses):
        patches, location = observation["patches"], observation["location"]
        location_policy, answer_policy, value, state = agent(patches[None], location[None], state)
        next_location, answer = location_policy.sample()[0], answer_policy.sample()[0]
        observation, reward, *_ = env.step({"location": next_location, "answer": answer})
        steps.append((patches, location, next_location, answer, value[0], reward))
    patches, location, next_location, answer, value, rewards = (torch.stack(part) for part in zip(*steps, strict=True))
    location_policy, answer_policy, _, _ = agent(patches, location)
    log_prob = masked_log_prob(location_policy, answer_policy, next_location, answer)
    returns = rewards.flip(0).cumsum(0).flip(0)
    return Rollout(patches, location, next_location, answer, log_prob, value, returns)


def ppo_losses(agent: Agent, rollout: Rollout, rows: Tensor, clip: float) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the clipped policy loss, the value loss, and the entropy of the last answer, of some rows."""
    part = Rollout(*(getattr(rollout, name)[:, rows] for name in Rollout.__dataclass_fields__))
    location, answer, value, _ = agent(part.patches, part.location)
    log_prob = masked_log_prob(location, answer, part.next_location, part.answer)
    advantage = part.returns - part.value
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = (log_prob - part.log_prob).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
    value_loss = (value - part.returns).square().mean()
    return policy_loss, value_loss, answer.entropy()[-1].mean()


def train(options: Options) -> float:
    """Trains, prints, and returns the accuracy of the last ten rollouts in percent."""
    torch.manual_seed(options.seed)
    env = GlimpseVectorEnv(
        Glyphs(num_train=5000),
        sensor=GlimpseSensor(patch_size=12, num_scales=2),
        num_envs=options.num_envs,
        num_glimpses=options.num_glimpses,
        output="torch",
        autoreset_mode="Disabled",  # all rows start and end together
    )
    observation, _ = env.reset(seed=options.seed)
    agent = Agent(observation["patches"][0].numel(), len(env.classes), options.std)
    optimizer = torch.optim.Adam(agent.parameters(), lr=options.learning_rate, eps=1e-5)
    accuracies: list[float] = []
    start = time.perf_counter()
    for iteration in range(options.num_iterations):
        optimizer.param_groups[0]["lr"] = options.learning_rate * (1 - iteration / options.num_iterations)
        rollout = collect_rollout(env, agent)
        accuracies.append(100 * rollout.returns[0].mean().item())
        for _ in range(options.num_epochs):
            for rows in torch.randperm(options.num_envs).chunk(options.num_minibatches):
                policy_loss, value_loss, entropy = ppo_losses(agent, rollout, rows, options.clip)
                loss = policy_loss + options.value_weight * value_loss - options.entropy_weight * entropy
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), options.max_grad_norm)
                optimizer.step()
        if (iteration + 1) % 20 == 0:
            episodes, seconds = (iteration + 1) * options.num_envs, time.perf_counter() - start
            print(
                f"{episodes:7d} episodes  accuracy {sum(accuracies[-10:]) / 10:5.1f} %  "
                f"value loss {value_loss.item():.3f}  entropy {entropy.item():.2f} nats  {seconds:4.0f} s"
            )
    return sum(accuracies[-10:]) / len(accuracies[-10:])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in asdict(Options()).items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    torch.set_num_threads(1)  # faster for small matrices
    train(Options(**vars(parser.parse_args())))
