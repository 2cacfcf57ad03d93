"""Compares attention weights with gradient norms, and draws both.

    python examples/attention_gradients.py attention_gradients.png

Six queries attend to twelve word vectors. The norm of the gradient of a context c = sum_n w_n v_n is computed

- with respect to the values v_n: it is the weight w_n itself;
- with respect to the word vectors x_n = k_n = v_n, which also determine the weights: it is w_n times a factor, since
  dc / dx_n = w_n (I + (x_n - c) q^T / sqrt(D)), so it vanishes with the weight;
- with respect to word vectors that pass through a self-attention layer first: every position then depends on every
  word, so the weight of a position says little about the word there.

The first two are the reason why weights and gradients agree in a model with a single attention layer over the word
vectors. Their correlations with the weights are printed.
"""

import sys
from collections.abc import Callable

import torch
from matplotlib.figure import Figure
from torch import Tensor

from ram.attention import Attention, MultiHeadAttention, Select, causal_mask
from ram.attention.scores import ScaledDot
from ram.attention.selection import Hard, LocalMonotonic, Soft

QUERIES, KEYS, SIZE = 6, 12, 16
_COLORS = ("Blues", "Oranges", "Oranges")


def gradients(attention: Attention, query: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
    """Returns the norm of the gradient of every context with respect to every value: (Q, N)."""

    def context(values: Tensor) -> Tensor:
        return attention(query, keys, values[None], mask, need_weights=True).context[0]

    return _jacobian_norms(context, torch.randn(KEYS, SIZE))


def word_gradients(
    attention: Attention, query: Tensor, words: Tensor, mask: Tensor | None, encoder: Attention | None = None
) -> Tensor:
    """Returns the norm of the gradient of every context with respect to every word vector: (Q, N).

    Args:
        attention: attends to the word vectors, as keys and as values.
        query: (1, Q, D).
        words: (1, N, D).
        mask: of ``attention``.
        encoder: a self-attention layer that precedes ``attention``; None for none.
    """

    def context(words: Tensor) -> Tensor:
        encoded = words[None]
        if encoder is not None:
            encoded = encoder(encoded, encoded, encoded).context
        return attention(query, encoded, encoded, mask, need_weights=True).context[0]

    return _jacobian_norms(context, words[0])


def _jacobian_norms(context: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    jacobian = torch.autograd.functional.jacobian(context, inputs)  # (Q, D, N, D)
    return jacobian.square().sum((1, 3)).sqrt() / SIZE**0.5


def correlation(first: Tensor, second: Tensor) -> float:
    """Returns Pearson's correlation coefficient of all entries."""
    return float(torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1])


def main(path: str) -> None:
    """Prints the correlations of weights and gradient norms, and draws them."""
    torch.manual_seed(0)
    query, words = 2 * torch.randn(1, QUERIES, SIZE), torch.randn(1, KEYS, SIZE)
    encoder = MultiHeadAttention(SIZE, num_heads=2)
    selections: dict[str, tuple[Select, Tensor | None]] = {
        "soft": (Soft(), None),
        "soft, causal mask": (Soft(), causal_mask(KEYS, QUERIES)),
        "local window": (LocalMonotonic(half_width=2, gaussian=True), None),
        "hard": (Hard().eval(), None),
    }
    figure = Figure(figsize=(11, 6), dpi=110, layout="constrained")
    panels = figure.subplots(3, len(selections))
    print("correlation with the weights     values  words  words before self-attention")
    for (name, (select, mask)), column in zip(selections.items(), panels.T, strict=True):
        attention = Attention(ScaledDot(SIZE, SIZE), select)
        weights = attention(query, words, words, mask, need_weights=True).weights[0].detach()
        value_norms = gradients(attention, query, words, mask)
        torch.testing.assert_close(value_norms, weights)
        word_norms = word_gradients(attention, query, words, mask)
        assert torch.equal(word_norms == 0, weights == 0)
        assert correlation(word_norms, weights) > 0.9
        encoded = encoder(words, words, words).context
        encoded_weights = attention(query, encoded, encoded, mask, need_weights=True).weights[0].detach()
        encoded_norms = word_gradients(attention, query, words, mask, encoder)
        assert correlation(encoded_norms, encoded_weights) < 0.7
        columns = [correlation(value_norms, weights), correlation(word_norms, weights)]
        columns.append(correlation(encoded_norms, encoded_weights))
        print(f"{name:30}   " + "   ".join(f"{value:5.2f}" for value in columns))
        for panel, values, color in zip(column, (weights, word_norms, encoded_norms), _COLORS, strict=True):
            panel.imshow(values.numpy(), cmap=color, vmin=0)
            panel.set_xticks([])
            panel.set_yticks([])
        column[0].set_title(name, fontsize=10)
        column[-1].set_xlabel("key", fontsize=9)
    for panel, label in zip(panels[:, 0], ("weight", "gradient", "gradient before\nself-attention"), strict=True):
        panel.set_ylabel(f"{label}\nquery", fontsize=9)
    figure.savefig(path)
    print(f"  {path}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "attention_gradients.png")
