"""The evidence of single patches, a dense reward of locations."""

from __future__ import annotations

from torch import Tensor, nn

from ram.distributions import Categorical, full_precision

_LEAST = -4.0  # in nats, as that of the reward log_prob_gain


class Evidence(nn.Module):
    """Rewards a location for the log-probability of the label given its patch alone, computed by a linear classifier.

    A single glimpse of many hardly changes what the agent knows at the end, but it changes much what this glimpse
    shows. The classifier sees h_g, not g, which contains the location: an agent that knows the class could otherwise
    signal it by where it looks.

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
        """Returns the rewards (...) for log-probabilities (...), at least -4 nats times the weight."""
        return self.weight * log_prob.detach().clamp(min=_LEAST)
