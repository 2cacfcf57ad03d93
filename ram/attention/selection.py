"""Selections: attention weights from scores.

A mask is a bool tensor, True where a key is visible to a query; it broadcasts to (B, Q, N).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_positive, check_positive_integers, check_probability
from ram.distributions import Categorical


@dataclass(frozen=True)
class AttentionWeights:
    """The output of a selection.

    Attributes:
        weights: (B, Q, N); 0 where masked.
        log_prob: (B, Q), the log-probability of a sampled key, with gradient; 0 for a query with no visible key. None
            where nothing is sampled.
    """

    weights: Tensor
    log_prob: Tensor | None = None


class Select(nn.Module):
    """Base class of selections.

    Args:
        query_size: width Dq of a query; used only by selections with parameters.
    """

    def __init__(self, query_size: int | None = None) -> None:
        super().__init__()

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, query: Tensor | None = None, step: Tensor | None = None
    ) -> AttentionWeights:
        """Computes the attention weights.

        Args:
            scores: (B, Q, N).
            mask: bool, True where a key is visible; broadcasts to (B, Q, N). None shows all keys.
            query: (B, Q, Dq), the queries of the scores.
            step: (Q,) int64, the position of each query in its sequence; None for 0, 1, ...
        """
        return AttentionWeights(self.weights(scores, mask, query, step))

    def weights(self, scores: Tensor, mask: Tensor | None, query: Tensor | None, step: Tensor | None) -> Tensor:
        """Returns the weights (B, Q, N) of a selection without samples; the arguments are as in :meth:`forward`."""
        raise TypeError(f"{type(self).__name__} does not implement weights.")

    def logits(self, scores: Tensor, mask: Tensor | None, query: Tensor | None, step: Tensor | None) -> Tensor:
        """Returns the logits (B, Q, N) of the distribution over keys that a hard choice of one key is sampled from.

        Their softmax is proportional to the weights, to their mean where they are sampled. The arguments are as in
        :meth:`forward`. A selection whose weights are no probabilities does not override this method.
        """
        raise TypeError(f"{type(self).__name__} has no distribution over keys.")


class Soft(Select):
    """Softmax: positive weights with sum 1 (Bahdanau et al. 2015, equation 6)."""

    def weights(self, scores: Tensor, mask: Tensor | None, query: Tensor | None, step: Tensor | None) -> Tensor:
        return mask_weights(self.logits(scores, mask, query, step).softmax(-1), mask)

    def logits(self, scores: Tensor, mask: Tensor | None, query: Tensor | None, step: Tensor | None) -> Tensor:
        return masked_logits(scores, mask)


class Uniform(Soft):
    """Equal weights for all visible keys: a control without parameters that ignores the scores."""

    def logits(self, scores: Tensor, mask: Tensor | None, query: Tensor | None, step: Tensor | None) -> Tensor:
        return masked_logits(torch.zeros_like(scores), mask)


class Diagonal(Select):
    """Weight 1 for the key at the position of the query: a control without parameters that ignores the scores.

    Args:
        query_size: not used.
        from_end: count positions from the last visible key.
    """

    def __init__(self, query_size: int | None = None, from_end: bool = False) -> None:
        super().__init__(query_size)
        self.from_end = from_end

    def weights(self, scores: Tensor, mask: Tensor | None, query: Tensor | None, step: Tensor | None) -> Tensor:
        if not scores.shape[-1]:
            return scores
        visible, step = _visible_and_step(scores, mask, step)
        last = visible.sum(-1) - 1
        position = torch.minimum(step.expand_as(last), last)  # queries past the last key stay at it
        chosen = (last - position if self.from_end else position).clamp(min=0)
        return mask_weights(F.one_hot(chosen, scores.shape[-1]).to(scores.dtype), mask)

    def logits(self, scores: Tensor, mask: Tensor | None, query: Tensor | None, step: Tensor | None) -> Tensor:
        return masked_logits(torch.zeros_like(scores), self.weights(scores, mask, query, step) > 0)


class Unnormalized(Select):
    """The scores themselves as weights, of either sign and any sum."""

    def weights(self, scores: Tensor, mask: Tensor | None, query: Tensor | None, step: Tensor | None) -> Tensor:
        return mask_weights(scores, mask)


class Hard(Soft):
    """One key per query, with the probabilities of the softmax (Xu et al. 2015, section 4.1).

    In training the key is sampled; its log-probability is trained with REINFORCE, since no gradient passes through the
    weights. In evaluation it is the most probable key.

    Args:
        query_size: not used.
        soft_share: probability that the softmax weights replace the sample in training, in [0, 1). It reduces the
            variance of the gradient.
    """

    def __init__(self, query_size: int | None = None, soft_share: float = 0.0) -> None:
        super().__init__(query_size)
        check_probability("The soft_share of Hard", soft_share)
        self.soft_share = soft_share

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, query: Tensor | None = None, step: Tensor | None = None
    ) -> AttentionWeights:
        if not scores.shape[-1]:
            return AttentionWeights(scores, scores.sum(-1))
        distribution = Categorical(self.logits(scores, mask, query, step))
        noise = torch.randn_like(scores[..., :1])
        chosen = distribution.sample(noise) if self.training else distribution.mode(noise)
        weights = mask_weights(F.one_hot(chosen, scores.shape[-1]).to(scores.dtype), mask)
        log_prob = distribution.log_prob(chosen)
        if mask is not None:
            log_prob = torch.where(mask.any(-1), log_prob, 0)
        if self.training and self.soft_share:
            soft = torch.rand_like(scores[..., :1]) < self.soft_share
            weights = torch.where(soft, self.weights(scores, mask, query, step), weights)
            log_prob = torch.where(soft[..., 0], 0, log_prob)
        return AttentionWeights(weights, log_prob)


class GumbelSoftmax(Soft):
    """One key per query, with the gradient of a softmax: straight-through (Jang et al. 2017, section 2.2).

    In training Gumbel noise is added to the scores, so that the key is a sample of their softmax; in evaluation it is
    the most probable key.

    Args:
        query_size: not used.
        temperature: of the softmax that provides the gradient; towards 0 it approaches one-hot and its gradient grows.
    """

    def __init__(self, query_size: int | None = None, temperature: float = 1.0) -> None:
        super().__init__(query_size)
        check_positive("The temperature of GumbelSoftmax", temperature)
        self.temperature = temperature

    def weights(self, scores: Tensor, mask: Tensor | None, query: Tensor | None, step: Tensor | None) -> Tensor:
        if not scores.shape[-1]:
            return scores
        logits = masked_logits(scores, mask)
        if self.training:
            logits = logits - torch.empty_like(scores).exponential_().log()
        soft = (logits / self.temperature).softmax(-1)
        one_hot = F.one_hot(soft.argmax(-1), scores.shape[-1]).to(soft.dtype)
        return mask_weights(one_hot + (soft - soft.detach()), mask)


class Local(Select):
    """Base class of local attention: softmax within D keys of a center (Luong et al. 2015, section 3.2).

    Args:
        query_size: width Dq of a query.
        half_width: D.
        gaussian: multiply the weights by a Gaussian of the distance from the center with standard deviation D / 2
            (equation 10); their sum is then below 1.
    """

    def __init__(self, query_size: int | None, half_width: int, gaussian: bool) -> None:
        super().__init__(query_size)
        check_positive_integers(type(self).__name__, half_width=half_width)
        self.half_width, self.gaussian = half_width, gaussian

    def center(self, lengths: Tensor, query: Tensor | None, step: Tensor) -> Tensor:
        """Returns the center of each query's window as a real-valued key position: (B, Q).

        Args:
            lengths: (B, Q), the number of visible keys, which come first.
            query: (B, Q, Dq).
            step: (Q,), the position of each query in its sequence.
        """
        raise TypeError(f"{type(self).__name__} does not implement center.")

    def _window(
        self, scores: Tensor, mask: Tensor | None, query: Tensor | None, step: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Returns the visible keys within the window (B, Q, N) bool and their distances from the center (B, Q, N)."""
        visible, step = _visible_and_step(scores, mask, step)
        # Half precision does not represent every integer above 256.
        lengths = visible.sum(-1).to(torch.promote_types(scores.dtype, torch.float32))
        center = self.center(lengths, query, step)
        distance = torch.arange(scores.shape[-1], device=scores.device) - center[..., None]
        return visible & (distance.abs() <= self.half_width), distance

    def weights(self, scores: Tensor, mask: Tensor | None, query: Tensor | None, step: Tensor | None) -> Tensor:
        within, distance = self._window(scores, mask, query, step)
        weights = mask_weights(masked_logits(scores, within).softmax(-1), within)
        if self.gaussian:
            weights = weights * torch.exp(self._log_gaussian(distance))
        return weights.to(scores.dtype)

    def logits(self, scores: Tensor, mask: Tensor | None, query: Tensor | None, step: Tensor | None) -> Tensor:
        within, distance = self._window(scores, mask, query, step)
        return masked_logits(scores + self._log_gaussian(distance) if self.gaussian else scores, within)

    def _log_gaussian(self, distance: Tensor) -> Tensor:
        """Returns -d^2 / (2 (D / 2)^2)."""
        return -2 * (distance / self.half_width).square()


class LocalMonotonic(Local):
    """Local attention whose center is the position of the query, at most that of the last visible key: local-m.

    Args:
        query_size: not used.
        half_width: D.
        gaussian: multiply the weights by a Gaussian; the paper does so for local-p only.
    """

    def __init__(self, query_size: int | None = None, half_width: int = 10, gaussian: bool = False) -> None:
        super().__init__(query_size, half_width, gaussian)

    def center(self, lengths: Tensor, query: Tensor | None, step: Tensor) -> Tensor:
        return torch.minimum(step.to(lengths.dtype), (lengths - 1).clamp(min=0))


class LocalPredictive(Local):
    """Local attention with a predicted center S sigmoid(v^T tanh(W q)), S the number of visible keys: local-p.

    See Luong et al. (2015), section 3.2, equation 9. The center's gradient comes through the Gaussian.

    Args:
        query_size: width Dq of a query.
        half_width: D.
        hidden_size: rows of W; None for ``query_size``.
    """

    def __init__(self, query_size: int | None = None, half_width: int = 10, hidden_size: int | None = None) -> None:
        super().__init__(query_size, half_width, gaussian=True)
        if query_size is None:
            raise InputError("The selection LocalPredictive needs the width of a query: set its query_size.")
        check_positive_integers("LocalPredictive", hidden_size=hidden_size)
        hidden_size = query_size if hidden_size is None else hidden_size
        self.position = nn.Sequential(
            nn.Linear(query_size, hidden_size, bias=False), nn.Tanh(), nn.Linear(hidden_size, 1, bias=False)
        )

    def center(self, lengths: Tensor, query: Tensor | None, step: Tensor) -> Tensor:
        assert query is not None
        return lengths * self.position(query).squeeze(-1).to(lengths.dtype).sigmoid()


def padding_mask(lengths: Tensor, size: int) -> Tensor:
    """Masks the padding of the shorter rows of a batch.

    Args:
        lengths: (B,) int64, the number of keys in each row, in [0, size].
        size: N.

    Returns:
        (B, 1, N) bool.
    """
    return torch.arange(size, device=lengths.device) < lengths[:, None, None]


def causal_mask(
    size: int, queries: int | None = None, strict: bool = False, device: torch.device | None = None
) -> Tensor:
    """Masks later keys: a query sees the keys up to its own position.

    Args:
        size: N.
        queries: Q, at the last of the N positions; None for N.
        strict: mask the query's own position too.
        device: where the mask is created.

    Returns:
        (1, Q, N) bool.

    Raises:
        InputError: if there are more queries than positions.
    """
    queries = size if queries is None else queries
    if queries > size:
        raise InputError(f"A causal mask needs a position for every query, got {queries} queries and {size} positions.")
    query = torch.arange(size - queries, size, device=device)[:, None]
    key = torch.arange(size, device=device)
    return ((key < query) if strict else (key <= query))[None]


def masked_logits(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Replaces the scores of masked keys by the smallest finite number, unless all keys of a query are masked."""
    if mask is None:
        return scores
    visible = mask | ~mask.any(-1, keepdim=True)
    return scores.masked_fill(~visible, torch.finfo(scores.dtype).min)


def mask_weights(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Sets the weights of masked keys to exactly 0."""
    return weights if mask is None else weights.masked_fill(~mask, 0)


def _visible_and_step(scores: Tensor, mask: Tensor | None, step: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns the mask as (B, Q, N) bool and the positions of the queries (Q,), with their defaults filled in."""
    visible = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.expand_as(scores)
    return visible, torch.arange(scores.shape[1], device=scores.device) if step is None else step
