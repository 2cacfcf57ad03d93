"""Batch normalization over the global batch of several processes, on any device."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ram.distributed import world


def synchronize_batch_norm(module: nn.Module) -> None:
    """Makes the batch normalization in a module use the statistics of all processes; does nothing in a single one.

    ``torch.nn.SyncBatchNorm`` does the same on GPUs only.
    """
    if world().size > 1:
        for norm in module.modules():
            if isinstance(norm, _BatchNorm) and not isinstance(norm, nn.SyncBatchNorm):
                norm.forward = partial(_forward, norm)  # type: ignore[method-assign]


def _forward(norm: _BatchNorm, inputs: Tensor) -> Tensor:
    """Normalizes (B, C, ...) by the statistics of all processes in training, by the running ones in evaluation."""
    if not norm.training:
        return type(norm).forward(norm, inputs)
    dims = [dim for dim in range(inputs.ndim) if dim != 1]
    shape = [-1 if dim == 1 else 1 for dim in range(inputs.ndim)]
    count = inputs.new_tensor([inputs.numel() / inputs.shape[1]])
    sums, count = _AllReduce.apply(torch.cat([inputs.sum(dims), count])).split([inputs.shape[1], 1])
    mean = sums / count
    centered = inputs - mean.view(shape)
    variance = _AllReduce.apply(centered.square().sum(dims)) / count
    _update_statistics(norm, mean.detach(), variance.detach(), count.detach())
    normalized = centered * (variance + norm.eps).rsqrt().view(shape)
    return normalized if norm.weight is None else normalized * norm.weight.view(shape) + norm.bias.view(shape)


def _update_statistics(norm: _BatchNorm, mean: Tensor, variance: Tensor, count: Tensor) -> None:
    """Updates the running statistics as ``torch.nn.BatchNorm2d`` does, with the unbiased variance."""
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked += 1
    momentum = 1 / norm.num_batches_tracked if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_(mean, momentum)
    norm.running_var.lerp_(variance * count / (count - 1), momentum)


class _AllReduce(torch.autograd.Function):
    """The sum over the processes; its gradient is the sum of their gradients."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        values = values.clone()
        dist.all_reduce(values)
        return values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient)
        return gradient
