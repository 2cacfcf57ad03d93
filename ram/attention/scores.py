"""Scores: compatibility functions of queries and keys."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from envs.errors import InputError
from envs.validation import check_positive, check_positive_integers


class Score(nn.Module):
    """Base class of scores: (B, Q, Dq), (B, N, Dk) -> (B, Q, N).

    Args:
        query_size: width Dq of a query.
        key_size: width Dk of a key.
    """

    same_size = False
    """Whether the formula needs queries and keys of equal width."""
    max_length: int | None = None
    """The largest N; None for any."""

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__()
        self.query_size, self.key_size = query_size, key_size
        if self.same_size and query_size != key_size:
            raise InputError(
                f"The score {type(self).__name__} needs queries and keys of equal width, got {query_size} "
                f"and {key_size}: use General or Additive."
            )

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Computes the score of every key for every query, a real number."""
        return self.compare(query, self.prepare(keys))

    def prepare(self, keys: Tensor) -> Tensor:
        """Computes the part of the score that depends on the keys only: (B, N, Dk) -> (B, N, ...)."""
        return keys

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Like :meth:`forward`, with keys from :meth:`prepare`."""
        raise TypeError(f"{type(self).__name__} does not implement compare.")


class Dot(Score):
    """q . k (Luong et al. 2015, section 3.1)."""

    same_size = True

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        return query @ prepared.mT


class ScaledDot(Score):
    """q . k / sqrt(D), whose variance does not depend on D (Vaswani et al. 2017, equation 1)."""

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
        hidden_size: width of the hidden layer; None for ``key_size``.
    """

    def __init__(self, query_size: int, key_size: int, hidden_size: int | None = None) -> None:
        super().__init__(query_size, key_size)
        check_positive_integers("Additive", hidden_size=hidden_size)
        hidden_size = key_size if hidden_size is None else hidden_size
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

    The score of a zero query or a zero key is 0.

    Args:
        query_size: width Dq of a query.
        key_size: width Dk of a key, equal to ``query_size``.
        sharpness: initial beta.
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
    """W q: a score of key positions that ignores the keys (Luong et al. 2015, section 3.1).

    Args:
        query_size: width Dq of a query.
        key_size: not used.
        max_length: the largest N.
    """

    def __init__(self, query_size: int, key_size: int, max_length: int = 64) -> None:
        super().__init__(query_size, key_size)
        check_positive_integers("Location", max_length=max_length)
        self.max_length = max_length
        self.weight = nn.Linear(query_size, max_length, bias=False)

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        count = prepared.shape[1]
        if count > self.weight.out_features:
            raise InputError(f"The score Location got {count} keys, but has max_length={self.max_length}: raise it.")
        return self.weight(query)[..., :count]


def _direction(vectors: Tensor) -> Tensor:
    """Normalizes vectors to length 1; zeros stay zero and have a finite gradient."""
    length = vectors.norm(dim=-1, keepdim=True)
    return vectors / length.masked_fill(length == 0, 1)
