"""Scores: how well each key answers each query."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_positive


class Score(nn.Module):
    """Compares queries with keys: (B, Q, Dq), (B, N, Dk) -> (B, Q, N).

    Args:
        query_size: width Dq of a query.
        key_size: width Dk of a key.
    """

    same_size = False
    """Whether the formula needs queries and keys of one width."""
    max_length: int | None = None
    """The largest N there may be; None for any."""

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__()
        if self.same_size and query_size != key_size:
            raise InputError(
                f"The score {type(self).__name__} needs queries and keys of one width, got {query_size} and "
                f"{key_size}: take General or Additive."
            )

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Any number; the more, the better the key answers."""
        return self.compare(query, self.prepare(keys))

    def prepare(self, keys: Tensor) -> Tensor:
        """What all queries share of the work: (B, N, Dk) -> (B, N, ...)."""
        return keys

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        """As :meth:`forward`, with keys that :meth:`prepare` has seen."""
        raise TypeError(f"{type(self).__name__} does not say how it scores.")


class Dot(Score):
    """q . k (Luong et al. 2015, section 3.1)."""

    same_size = True

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        return query @ prepared.mT


class ScaledDot(Score):
    """q . k / sqrt(D), which keeps its variance at that of one product (Vaswani et al. 2017, equation 1)."""

    same_size = True

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        return query @ prepared.mT / math.sqrt(prepared.shape[-1])


class General(Score):
    """q^T W k (Luong et al. 2015, section 3.1)."""

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__(query_size, key_size)
        self.weight = nn.Linear(query_size, key_size, bias=False)

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        return self.weight(query) @ prepared.mT


class Additive(Score):
    """v^T tanh(W1 q + W2 k): a network with one hidden layer (Bahdanau et al. 2015, appendix A.1.2).

    Args:
        query_size: width Dq of a query.
        key_size: width Dk of a key.
        hidden_size: width of the hidden layer; None for that of a key.
    """

    def __init__(self, query_size: int, key_size: int, hidden_size: int | None = None) -> None:
        super().__init__(query_size, key_size)
        if hidden_size is None:
            hidden_size = key_size
        if hidden_size < 1:
            raise InputError(f"The hidden_size of the score Additive must be at least 1, got {hidden_size}.")
        self.query = nn.Linear(query_size, hidden_size, bias=False)
        self.key = nn.Linear(key_size, hidden_size, bias=False)
        self.out = nn.Linear(hidden_size, 1, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        return self.key(keys)

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        hidden = torch.tanh(self.query(query)[:, :, None] + prepared[:, None])  # (B, Q, N, hidden)
        return self.out(hidden).squeeze(-1)


class Content(Score):
    """beta cos(q, k), with a learned sharpness beta > 0 (Graves et al. 2014, equation 5).

    A query or key of zeros is as far from all others as from none: it scores 0.

    Args:
        query_size: width Dq of a query.
        key_size: width Dk of a key, the same.
        sharpness: beta, before anything has been learnt.
    """

    same_size = True

    def __init__(self, query_size: int, key_size: int, sharpness: float = 5.0) -> None:
        super().__init__(query_size, key_size)
        check_positive("The sharpness of the score Content", sharpness)
        self.log_sharpness = nn.Parameter(torch.tensor(math.log(sharpness)))

    def prepare(self, keys: Tensor) -> Tensor:
        return _direction(keys)

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        return self.log_sharpness.exp() * (_direction(query) @ prepared.mT)


class Location(Score):
    """W q, whatever the keys hold: a score of places (Luong et al. 2015, section 3.1).

    Args:
        query_size: width Dq of a query.
        key_size: width Dk of a key, of which nothing is used.
        max_length: the largest N there may be.
    """

    def __init__(self, query_size: int, key_size: int, max_length: int = 64) -> None:
        super().__init__(query_size, key_size)
        if max_length < 1:
            raise InputError(f"The max_length of the score Location must be at least 1, got {max_length}.")
        self.max_length = max_length
        self.weight = nn.Linear(query_size, max_length, bias=False)

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        number = prepared.shape[1]
        if number > self.weight.out_features:
            raise InputError(
                f"The score Location knows {self.max_length} places and was given {number} keys: raise its max_length."
            )
        return self.weight(query)[..., :number]


def _direction(vectors: Tensor) -> Tensor:
    """Vectors of length 1; zeros stay zeros, and their gradient stays finite."""
    length = vectors.norm(dim=-1, keepdim=True)
    return vectors / length.masked_fill(length == 0, 1)
