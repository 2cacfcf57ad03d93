"""PPO (Schulman et al. 2017) on one page: an agent with a memory learns where to look and what to answer.

    python examples/ppo_single_page.py --num_iterations 300 --num_glimpses 4

Nobody tells it the label: it is paid 1 for a right answer, and that is all it learns from. The environment's tensors
are used as they are, and every row plays one whole episode at a time, so that a rollout is (T looks, B rows).
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
    """Each is an option of the command line."""

    seed: int = 0
    num_envs: int = 512
    num_glimpses: int = 3
    num_iterations: int = 200  # of one episode a row
    num_epochs: int = 4  # passes over a rollout
    num_minibatches: int = 4
    learning_rate: float = 2e-3  # at first; it falls to 0
    clip: float = 0.2  # of the probability ratio
    std: float = 0.15  # of the Gaussian that locations are drawn from
    entropy_weight: float = 0.01
    value_weight: float = 0.5
    max_grad_norm: float = 0.5


class Agent(nn.Module):
    """Reads looks into a memory; from it chooses the next location and an answer, and says what it hopes to earn."""

    def __init__(self, patch_size: int, num_classes: int, std: float, width: int = 128) -> None:
        super().__init__()
        self.std = std
        self.look = nn.Sequential(nn.Linear(patch_size + 2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.memory = nn.GRU(width, width)
        self.location = nn.Linear(width, 2)
        self.answer = nn.Linear(width, num_classes)
        self.value = nn.Linear(width, 1)

    def forward(
        self, patches: Tensor, location: Tensor, state: Tensor | None = None
    ) -> tuple[Normal, Categorical, Tensor, Tensor]:
        """T looks -> distributions of location (T, B, 2) and answer (T, B), value (T, B), state (1, B, width)."""
        seen, state = self.memory(self.look(torch.cat([patches.flatten(2), location], dim=2)), state)
        place = Normal(torch.tanh(self.location(seen)), self.std)
        return place, Categorical(logits=self.answer(seen)), self.value(seen)[..., 0], state


def train(options: Options) -> float:
    """Trains, prints, and returns the accuracy of the last ten rollouts, in percent."""
    torch.manual_seed(options.seed)
    env = GlimpseVectorEnv(
        Glyphs(num_train=5000),
        sensor=GlimpseSensor(patch_size=12, num_scales=2),
        num_envs=options.num_envs,
        num_glimpses=options.num_glimpses,
        output="torch",
        autoreset_mode="Disabled",  # all rows begin and end together
    )
    observation, _ = env.reset(seed=options.seed)
    agent = Agent(observation["patches"][0].numel(), len(env.classes), options.std)
    optimizer = torch.optim.Adam(agent.parameters(), lr=options.learning_rate, eps=1e-5)
    # The last location is never looked at, and of the answers only the last one counts.
    location_matters = torch.ones(options.num_glimpses, 1)
    location_matters[-1] = 0
    answer_matters = 1 - location_matters

    accuracies: list[float] = []
    start = time.perf_counter()
    for iteration in range(options.num_iterations):
        optimizer.param_groups[0]["lr"] = options.learning_rate * (1 - iteration / options.num_iterations)

        # Play.
        steps: list[tuple[Tensor, ...]] = []
        state = None
        observation, _ = env.reset()
        with torch.no_grad():
            for _ in range(options.num_glimpses):
                look = observation["patches"], observation["location"]
                place, answer, value, state = agent(look[0][None], look[1][None], state)
                location, named = place.sample(), answer.sample()
                log_prob = place.log_prob(location).sum(-1), answer.log_prob(named)
                observation, reward, *_ = env.step({"location": location[0], "answer": named[0]})
                steps.append((*look, location[0], named[0], log_prob[0][0], log_prob[1][0], value[0], reward))
        *rollout, rewards = (torch.stack(parts) for parts in zip(*steps, strict=True))
        returns = rewards.flip(0).cumsum(0).flip(0)  # from each action on, not discounted
        accuracies.append(100 * returns[0].mean().item())

        # Learn.
        for _ in range(options.num_epochs):
            for rows in torch.randperm(options.num_envs).chunk(options.num_minibatches):
                patches, where, location, named, old_place, old_answer, old_value = (part[:, rows] for part in rollout)
                place, answer, value, _ = agent(patches, where)
                old_log_prob = location_matters * old_place + answer_matters * old_answer
                log_prob = location_matters * place.log_prob(location).sum(-1) + answer_matters * answer.log_prob(named)
                advantage = returns[:, rows] - old_value
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                ratio = (log_prob - old_log_prob).exp()
                clipped = ratio.clamp(1 - options.clip, 1 + options.clip)
                policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
                value_loss = (value - returns[:, rows]).square().mean()
                entropy = (answer_matters * answer.entropy()).sum(0).mean()
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
    last = accuracies[-10:]
    return sum(last) / len(last)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in asdict(Options()).items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    torch.set_num_threads(1)  # the matrices are small
    train(Options(**vars(parser.parse_args())))
