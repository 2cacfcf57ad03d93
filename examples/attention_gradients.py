"""What attention does not read, no gradient reaches: weights beside the gradients that flow back through them.

    python examples/attention_gradients.py attention_gradients.png

Six queries read twelve values. A row of the upper panels is what a query weighs; the same row below is the norm of the
gradient of what it read with respect to each value. They are the same picture: a value that counts w gets w times the
gradient, and what is hidden or not chosen gets none at all.
"""

import sys

import torch
from matplotlib.figure import Figure

from ram.attention import Attention, Select, causal_mask
from ram.attention.scores import ScaledDot
from ram.attention.selection import Hard, LocalMonotonic, Soft

QUERIES, KEYS, SIZE = 6, 12, 16


def gradients(attention: Attention, query: torch.Tensor, keys: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """(Q, N): the norm of the gradient of every query's context with respect to every value."""
    values = torch.randn(KEYS, SIZE)

    def read(values: torch.Tensor) -> torch.Tensor:
        return attention(query, keys, values[None], mask, need_weights=True).context[0]

    jacobian = torch.autograd.functional.jacobian(read, values)  # (Q, SIZE, N, SIZE)
    return jacobian.square().sum((1, 3)).sqrt() / SIZE**0.5


def main(path: str) -> None:
    """Draws."""
    torch.manual_seed(0)
    query, keys = 2 * torch.randn(1, QUERIES, SIZE), torch.randn(1, KEYS, SIZE)
    ways: dict[str, tuple[Select, torch.Tensor | None]] = {
        "soft": (Soft(), None),
        "soft, causal mask": (Soft(), causal_mask(KEYS, QUERIES)),
        "local window": (LocalMonotonic(half_width=2, gaussian=True), None),
        "hard": (Hard().eval(), None),
    }
    figure = Figure(figsize=(11, 4.2), dpi=110, layout="constrained")
    panels = figure.subplots(2, len(ways))
    for (name, (select, mask)), (above, below) in zip(ways.items(), panels.T, strict=True):
        attention = Attention(ScaledDot(SIZE, SIZE), select)
        weights = attention(query, keys, keys, mask, need_weights=True).weights[0]
        flow = gradients(attention, query, keys, mask)
        torch.testing.assert_close(flow, weights)
        above.imshow(weights.detach().numpy(), cmap="Blues", vmin=0, vmax=1)
        below.imshow(flow.numpy(), cmap="Oranges", vmin=0, vmax=1)
        above.set_title(name, fontsize=10)
    for row, what in zip(panels, ("weight", "gradient"), strict=True):
        row[0].set_ylabel(f"{what}\nquery", fontsize=9)
        for panel in row:
            panel.set_xticks([])
            panel.set_yticks([])
    for panel in panels[1]:
        panel.set_xlabel("key", fontsize=9)
    figure.savefig(path)
    print(f"  {path}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "attention_gradients.png")
