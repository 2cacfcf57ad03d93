"""Recurrent visual attention: agents that choose where to look, and what trains them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import envs

if not hasattr(envs, "GlimpseVectorEnv"):
    _other = getattr(envs, "__file__", None) or next(iter(envs.__path__))
    raise ImportError(f"Another module named envs hides this project's: rename {_other}.")

__all__ = ["load"]


def load(run: str | Path, device: str = "cpu") -> Any:
    """The trained model of a run, with the weights that did best on the validation split.

    Args:
        run: the folder of the run.
        device: where it computes.

    Returns:
        For glimpses a :class:`ram.tasks.glimpse.GlimpsePredictor`, with ``predict(images)``; for texts a
        :class:`ram.inference.text.TextClassifier` or :class:`ram.inference.text.TextTagger`, with
        ``predict(texts)``, a :class:`ram.inference.text.TextGenerator`, with ``sample()``,
        or a :class:`ram.inference.translation.TextTranslator`, with ``translate(texts)``, ``n_best(texts, n)`` and
        ``sample(texts)``.

    Raises:
        envs.InputError: if the folder is none of a run, or its checkpoint does not serve.
    """
    from ram.inference.load import load_model  # imports Hydra, which environments alone do not need

    return load_model(Path(run), device)
