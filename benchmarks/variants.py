"""Times other implementations of the same training step."""

from __future__ import annotations

import time
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.timing import alternate, show, threads
from benchmarks.training import Training
from envs.images import ImageSet
from ram.baselines import LearnedBaseline
from ram.networks import ActionNetwork
from ram.reinforce import BaselineOutput, Rollout, reinforce
from ram.tasks import StepResult
from ram.tasks.glimpse import GlimpseTask


class HeadsEveryStep(GlimpseTask):
    """Evaluates location policy and baseline at every glimpse; the default does so once for all glimpses."""

    def forward(self, step: int) -> StepResult:
        agent, env = self.agent, self.env
        noise = self._noise(step)
        observation, info = env.reset(options={"index": self._batch(step), "episode": step})
        state = None
        features, log_probs, values, rewards = [], [], [], []
        answer = torch.zeros_like(info["label"])
        for number in range(env.num_glimpses):
            hidden, _, state = agent.step(observation, state)
            policy = agent.location(hidden)
            sample = policy.sample(noise["location"][number])
            features.append(hidden)
            log_probs.append(policy.log_prob(sample))
            values.append(cast(LearnedBaseline, self.baseline).head(hidden.detach()).squeeze(-1))
            if number == env.num_glimpses - 1:
                logits = cast(ActionNetwork, agent.action)(hidden).logits
                answer = logits.argmax(-1)
            observation, reward, _, _, _ = env.step({"location": sample.clamp(-1, 1), "answer": answer})
            rewards.append(reward)
        value = torch.stack(values)
        active = torch.ones_like(value, dtype=torch.bool)
        mask = torch.arange(env.num_glimpses)[:, None] < torch.full_like(answer, env.num_glimpses - 1)
        rollout = Rollout(
            torch.stack(features), torch.stack(log_probs), active, mask, torch.stack(rewards), info["index"]
        )

        def baseline(rollout: Rollout, returns: Tensor) -> BaselineOutput:
            return BaselineOutput(value.detach(), (value - returns).square().mean())

        estimate = reinforce(rollout, baseline, self.gamma)
        loss = estimate.policy_loss + F.cross_entropy(logits, info["label"]) + estimate.baseline_loss
        return StepResult(loss, dict)


class LowPrecision(Training):
    """Computes the loss under torch.autocast with bfloat16."""

    def loss(self) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().loss()


def time_variants(images: ImageSet, seconds: float, least: int, compiled: bool) -> None:
    """Times variants of the training step."""
    count = torch.get_num_threads()
    other = 2 if count == 1 else 1
    default, each, threaded = Training(images, 128), Training(images, 128, HeadsEveryStep), Training(images, 128)
    torch.testing.assert_close(each.task(0).loss, default.task(0).loss)

    def step_with_other_threads() -> None:
        torch.set_num_threads(other)
        threaded.step()
        torch.set_num_threads(count)

    runs = {
        f"the default: {threads(count)}, fused AdamW, heads once for all glimpses": default.step,
        "AdamW, foreach": Training(images, 128, foreach=True).step,
        "AdamW, one parameter after another": Training(images, 128, foreach=False).step,
        "heads at every glimpse": each.step,
        "matrix products in bfloat16": LowPrecision(images, 128).step,
    }
    note = "torch.compile is left out."
    if compiled:
        start = time.perf_counter()
        training = Training(images, 128, compiled=True)
        try:
            training.step()
        except RuntimeError as error:  # raised by torch.compile, for example without a C++ compiler
            note = f"torch.compile failed: {type(error).__name__}: {str(error).strip().splitlines()[0]}"
        else:
            runs["torch.compile of the agent's step"] = training.step
            note = f"The first compiled step took {time.perf_counter() - start:.0f} s."
    rows = []
    # Separately, because idle threads keep a core busy for a while and would slow down the other variants.
    for group in (runs, {"": default.step, threads(other): step_with_other_threads}):
        spent = alternate(group, seconds, least)
        base = next(iter(spent.values()))
        rows += [[name, f"{1e3 * value:.2f}", f"{value / base:.2f}"] for name, value in spent.items() if name]
    show(
        "Variants of the training step",
        ["variant", "step (ms)", "relative to the default"],
        rows,
        f"A training step with a batch of 128; below 1 is faster. {note}\n"
        "On a machine with other load two threads wait for each other at every matrix product.",
    )
