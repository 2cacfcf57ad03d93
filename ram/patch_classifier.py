"""A classifier of single patches, whose log-probabilities are a dense reward of locations."""

from __future__ import annotations

from torch import Tensor, nn

from ram.distributions import Categorical, full_precision

_FLOOR = -4.0  # in nats, as that of the reward log_prob_gain


class PatchClassifier(nn.Module):
    """Predicts the label from one patch alone, linearly in h_g; its log-probability rewards the location of the patch.

    A single glimpse of many hardly changes the answer of the agent at the end, so the reward of the answer is a weak
    signal for single locations. The input is h_g and not g, which also encodes the location: an agent that knows the
    label could otherwise choose locations from which the classifier infers it.

    Args:
        patch_features: width of h_g.
        num_classes: number of labels.
        weight: of the reward.
    """

    def __init__(self, patch_features: int, num_classes: int, weight: float) -> None:
        super().__init__()
        self.weight, self.logits = weight, nn.Linear(patch_features, num_classes)

    @full_precision
    def forward(self, patch_features: Tensor, labels: Tensor) -> Tensor:
        """Returns the log-probabilities (...) of labels (...) given h_g (..., D), in nats; with gradient."""
        return Categorical(self.logits(patch_features)).log_prob(labels)

    def reward(self, log_prob: Tensor) -> Tensor:
        """Returns the rewards (...) for log-probabilities (...): these, at least -4, times the weight."""
        return self.weight * log_prob.detach().clamp(min=_FLOOR)
