"""Precision of the networks' computations."""

from __future__ import annotations

import torch

from envs.errors import InputError
from envs.validation import check_choice

PRECISIONS = ("float32", "bf16")


def autocast(precision: str, device: str | torch.device) -> torch.autocast:
    """Returns the context in which a training step or an evaluation is computed.

    With "bf16", matrix products and convolutions take and return bfloat16. Weights, locations, log-probabilities,
    logits and losses stay float32.

    Args:
        precision: "float32" or "bf16".
        device: of the computation.

    Raises:
        InputError: for another precision, or if the device does not compute bfloat16.
    """
    check_choice("precision", precision, PRECISIONS)
    if precision == "bf16" and not _computes_bfloat16(torch.device(device)):
        raise InputError(
            "precision=bf16 needs a processor with AVX-512 BF16 or AMX, or a GPU with bfloat16; "
            f"device={device} has none: set precision=float32."
        )
    # A cached bfloat16 weight has no gradient if its first use is without one, as where a location is sampled.
    return torch.autocast(torch.device(device).type, torch.bfloat16, enabled=precision == "bf16", cache_enabled=False)


def _computes_bfloat16(device: torch.device) -> bool:
    """Returns whether a device has instructions for products of bfloat16; emulated they are slower than float32."""
    if device.type == "cpu":
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
