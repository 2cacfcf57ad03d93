"""Recurrent visual attention: agents, sequence models and their training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import envs

if not hasattr(envs, "GlimpseVectorEnv"):
    _other = getattr(envs, "__file__", None) or next(iter(envs.__path__))
    raise ImportError(f"Another module named envs shadows this project's: rename {_other}.")

__all__ = ["load"]


def load(run: str | Path, device: str = "cpu") -> Any:
    """Loads the trained model of a run, with its best weights on the validation split.

    Args:
        run: the folder of the run, or the name of a published model, such as "translated_60x60"; see
            :func:`ram.published.names`. Published models need neither Hydra nor the training data.
        device: where to compute.

    Returns:
        The model, of a class that depends on the task:

        - glimpse: :class:`ram.inference.glimpse.GlimpsePredictor`, with ``predict(images)``
        - classify_image: :class:`ram.inference.images.ImagePredictor`, with ``predict(images)``
        - caption: :class:`ram.inference.captions.ImageCaptioner`, with ``caption(images)``
        - classify_text: :class:`ram.inference.text.TextClassifier`, with ``predict(texts)``
        - tag: :class:`ram.inference.text.TextTagger`, with ``predict(texts)``
        - language_model: :class:`ram.inference.text.TextGenerator`, with ``sample()``
        - translate: :class:`ram.inference.translation.TextTranslator`, with ``translate(texts)``,
          ``n_best(texts, n)`` and ``sample(texts)``

    Raises:
        envs.InputError: if the folder contains no run, or its checkpoint does not match its configuration.
    """
    from ram import published

    if published.is_published(run):
        return published.load(str(run), device)
    from ram.training.run_folder import load_model  # imports Hydra, which environments do not need

    return load_model(Path(run), device)
