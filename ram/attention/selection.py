"""Selection: from scores to the share of every key in what is read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_positive, check_probability
from ram.distributions import Categorical


@dataclass(frozen=True)
class AttentionWeights:
    """What was selected.

    Attributes:
        weights: (B, Q, N), what each key counts; zeros where nothing is visible.
        log_prob: (B, Q), of the choice, with gradient, where one was made; 0 where nothing is visible.
    """

    weights: Tensor
    log_prob: Tensor | None = None


class Select(nn.Module):
    """Turns scores into weights.

    Args:
        query_size: width Dq of a query, for those that look at it.
    """

    def __init__(self, query_size: int | None = None) -> None:
        super().__init__()

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, query: Tensor | None = None, step: Tensor | None = None
    ) -> AttentionWeights:
        """Selects.

        Args:
            scores: (B, Q, N).
            mask: bool, True where a key is visible; it broadcasts to (B, Q, N). None shows all.
            query: (B, Q, Dq), what the scores were asked with.
            step: (Q,) int64, the place of each query in its own sequence; None for 0, 1, ...
        """
        raise TypeError(f"{type(self).__name__} does not say how it selects.")


class Soft(Select):
    """Softmax: positive weights whose sum is 1 (Bahdanau et al. 2015, equation 6)."""

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, query: Tensor | None = None, step: Tensor | None = None
    ) -> AttentionWeights:
        return AttentionWeights(hidden(logits(scores, mask).softmax(-1), mask))


class Uniform(Select):
    """The same for every visible key, whatever the scores: a control, which has nothing to learn."""

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, query: Tensor | None = None, step: Tensor | None = None
    ) -> AttentionWeights:
        return AttentionWeights(hidden(logits(torch.zeros_like(scores), mask).softmax(-1), mask))


class Diagonal(Select):
    """The key that stands where the query does, whatever the scores: a control, wired by hand.

    Args:
        query_size: of no use here.
        from_end: count the visible keys from the last.
    """

    def __init__(self, query_size: int | None = None, from_end: bool = False) -> None:
        super().__init__(query_size)
        self.from_end = from_end

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, query: Tensor | None = None, step: Tensor | None = None
    ) -> AttentionWeights:
        if not scores.shape[-1]:  # nothing to read
            return AttentionWeights(scores)
        visible, step = _seen(scores, mask, step)
        last = visible.sum(-1) - 1
        place = torch.minimum(step.expand_as(last), last)  # a longer output stays at the last
        chosen = (last - place if self.from_end else place).clamp(min=0)
        return AttentionWeights(hidden(F.one_hot(chosen, scores.shape[-1]).to(scores.dtype), mask))


class Unnormalised(Select):
    """The scores themselves: weights of either sign and any sum."""

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, query: Tensor | None = None, step: Tensor | None = None
    ) -> AttentionWeights:
        return AttentionWeights(hidden(scores, mask))


class Hard(Select):
    """One key alone, chosen with the probabilities of the softmax (Xu et al. 2015, section 4.1).

    In training it is sampled, and the choice is to be trained by REINFORCE through its log-probability, for no gradient
    passes through the weights. In evaluation it is the likeliest.

    Args:
        query_size: of no use here.
        soft_share: how often, in training, the softmax itself stands for a sample, in [0, 1): it tames the variance.
    """

    def __init__(self, query_size: int | None = None, soft_share: float = 0.0) -> None:
        super().__init__(query_size)
        check_probability("The soft_share of Hard", soft_share)
        self.soft_share = soft_share

    def choices(self, scores: Tensor, mask: Tensor | None = None) -> Categorical:
        """What the key is drawn from."""
        return Categorical(logits(scores, mask))

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, query: Tensor | None = None, step: Tensor | None = None
    ) -> AttentionWeights:
        if not scores.shape[-1]:  # nothing to choose from
            return AttentionWeights(scores, scores.sum(-1))
        choices = self.choices(scores, mask)
        noise = torch.randn_like(scores[..., :1])
        chosen = choices.sample(noise) if self.training else choices.mode(noise)
        weights = hidden(F.one_hot(chosen, scores.shape[-1]).to(scores.dtype), mask)
        log_prob = choices.log_prob(chosen)
        if mask is not None:
            log_prob = torch.where(mask.any(-1), log_prob, 0)
        if self.training and self.soft_share:
            soft = torch.rand_like(scores[..., :1]) < self.soft_share
            weights = torch.where(soft, hidden(logits(scores, mask).softmax(-1), mask), weights)
            log_prob = torch.where(soft[..., 0], 0, log_prob)
        return AttentionWeights(weights, log_prob)


class GumbelSoftmax(Select):
    """One key alone, with the gradient of a soft choice: straight through (Jang et al. 2017, section 2.2).

    In training scores are disturbed by Gumbel noise, so that the choice is a sample; in evaluation they are not.

    Args:
        query_size: of no use here.
        temperature: of the soft choice; towards 0 it hardens, and its gradient grows.
    """

    def __init__(self, query_size: int | None = None, temperature: float = 1.0) -> None:
        super().__init__(query_size)
        check_positive("The temperature of GumbelSoftmax", temperature)
        self.temperature = temperature

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, query: Tensor | None = None, step: Tensor | None = None
    ) -> AttentionWeights:
        if not scores.shape[-1]:  # nothing to choose from
            return AttentionWeights(scores)
        disturbed = logits(scores, mask)
        if self.training:
            disturbed = disturbed - torch.empty_like(scores).exponential_().log()
        soft = (disturbed / self.temperature).softmax(-1)
        one = F.one_hot(soft.argmax(-1), scores.shape[-1]).to(soft.dtype)
        return AttentionWeights(hidden(one + (soft - soft.detach()), mask))


class Local(Select):
    """Softmax within a window of 2 D + 1 places around a centre (Luong et al. 2015, section 3.2).

    Args:
        query_size: width Dq of a query.
        half_width: D.
        gaussian: multiply the weights by a Gaussian of the distance from the centre, of deviation D / 2 (section 3.2);
            their sum is below 1 then.
    """

    def __init__(self, query_size: int | None, half_width: int, gaussian: bool) -> None:
        super().__init__(query_size)
        if half_width < 1:
            raise InputError(f"The half_width of a local window must be at least 1, got {half_width}.")
        self.half_width, self.gaussian = half_width, gaussian

    def centre(self, lengths: Tensor, query: Tensor | None, step: Tensor) -> Tensor:
        """Where to look: (B, Q), a real number.

        Args:
            lengths: (B, Q), how many keys are visible; the first so many.
            query: (B, Q, Dq).
            step: (Q,), the place of each query in its own sequence.
        """
        raise TypeError(f"{type(self).__name__} does not say where its window is.")

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, query: Tensor | None = None, step: Tensor | None = None
    ) -> AttentionWeights:
        visible, step = _seen(scores, mask, step)
        # Half precision does not know every whole number above 256.
        number = visible.sum(-1).to(torch.promote_types(scores.dtype, torch.float32))
        centre = self.centre(number, query, step)
        place = torch.arange(scores.shape[-1], device=scores.device)
        distance = place - centre[..., None]
        within = visible & (distance.abs() <= self.half_width)
        weights = hidden(logits(scores, within).softmax(-1), within)
        if self.gaussian:
            weights = weights * torch.exp(-2 * (distance / self.half_width).square())  # d^2 / (2 (D/2)^2)
        return AttentionWeights(weights.to(scores.dtype))


class LocalMonotonic(Local):
    """The window moves on with the output, and stays at the end of a shorter input: local-m.

    Args:
        query_size: of no use here.
        half_width: D.
        gaussian: multiply the weights by a Gaussian, which the paper does not do here.
    """

    def __init__(self, query_size: int | None = None, half_width: int = 10, gaussian: bool = False) -> None:
        super().__init__(query_size, half_width, gaussian)

    def centre(self, lengths: Tensor, query: Tensor | None, step: Tensor) -> Tensor:
        return torch.minimum(step.to(lengths.dtype), (lengths - 1).clamp(min=0))


class LocalPredictive(Local):
    """The centre is predicted: S sigmoid(v^T tanh(W q)), S keys being visible: local-p (section 3.2).

    Its gradient comes through the Gaussian.

    Args:
        query_size: width Dq of a query.
        half_width: D.
        hidden_size: rows of W; None for ``query_size``.
    """

    def __init__(self, query_size: int | None = None, half_width: int = 10, hidden_size: int | None = None) -> None:
        super().__init__(query_size, half_width, gaussian=True)
        if query_size is None:
            raise InputError("The selection LocalPredictive reads queries and must be told their width, query_size.")
        hidden_size = query_size if hidden_size is None else hidden_size
        if hidden_size < 1:
            raise InputError(f"The hidden_size of LocalPredictive must be at least 1, got {hidden_size}.")
        self.position = nn.Sequential(
            nn.Linear(query_size, hidden_size, bias=False), nn.Tanh(), nn.Linear(hidden_size, 1, bias=False)
        )

    def centre(self, lengths: Tensor, query: Tensor | None, step: Tensor) -> Tensor:
        assert query is not None
        return lengths * self.position(query).squeeze(-1).to(lengths.dtype).sigmoid()


def logits(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Scores that a softmax turns into nothing where a key is hidden. A row that sees nothing stays finite."""
    if mask is None:
        return scores
    shown = mask | ~mask.any(-1, keepdim=True)
    return scores.masked_fill(~shown, torch.finfo(scores.dtype).min)


def hidden(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Weights with zeros, exactly, where a key is hidden."""
    return weights if mask is None else weights.masked_fill(~mask, 0)


def _seen(scores: Tensor, mask: Tensor | None, step: Tensor | None) -> tuple[Tensor, Tensor]:
    """Which keys each query sees, (B, Q, N) bool, and where it stands, (Q,)."""
    visible = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.expand_as(scores)
    return visible, torch.arange(scores.shape[1], device=scores.device) if step is None else step
