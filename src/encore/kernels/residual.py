"""The pieces of a residual network, each with its way back, on the kernels of convolution.py.

`stem` is a convolution, normalised and rectified; `basic_block` is two of them beside a shortcut. In training
mode both give what the modules give, but for rounding, with a tenth of the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from encore.kernels import convolution as kernels

COLUMNS = 32  # channels that a program computes
MOST_DEPTH = 64  # channels that it reads at a time
CORRELATE_ROWS = 64  # rows of the maps that a step adds up
ENOUGH_PROGRAMS = 288  # about two for each multiprocessor of a large GPU
NOTHING_BESIDE, FINISHED, RAW = range(3)  # what goes beside the last convolution of a piece


class Norm(NamedTuple):
    """The numbers of a batch normalisation that are no parameters."""

    mean: Tensor  # the running statistics, which are moved in place
    variance: Tensor
    num_batches: Tensor
    eps: float
    momentum: float


class _Layer(NamedTuple):
    """The parameters of a convolution and of the normalisation behind it."""

    weight: Tensor
    gamma: Tensor
    beta: Tensor


class _Raw(NamedTuple):
    """A convolution's result [N, C, H, W], and what normalises it."""

    maps: Tensor
    sums: Tensor  # float32 [2 C]: of the values, and of their squares
    gamma: Tensor
    beta: Tensor
    eps: float

    @property
    def num_rows(self) -> int:
        return self.maps.numel() // self.maps.shape[1]


def stem(maps: Tensor, convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> Tensor:
    """Return the convolved, normalised and rectified maps."""
    out: Tensor = _Stem.apply(maps, convolution.weight, norm.weight, norm.bias, _norm(norm))
    return out


def basic_block(maps: Tensor, layers: Sequence[tuple[nn.Conv2d, nn.BatchNorm2d]]) -> Tensor:
    """Return what two convolutions and a shortcut make of the maps; a third layer is the shortcut's."""
    parameters = [
        value for convolution, norm in layers for value in (convolution.weight, norm.weight, norm.bias)
    ]
    norms = tuple(_norm(norm) for _, norm in layers)
    out: Tensor = _BasicBlock.apply(maps, layers[0][0].stride[0], norms, *parameters)
    return out


def _norm(norm: nn.BatchNorm2d) -> Norm:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    return Norm(norm.running_mean, norm.running_var, norm.num_batches_tracked, norm.eps, norm.momentum)


class _Stem(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, gamma: Tensor, beta: Tensor, norm: Norm) -> Tensor:
        maps = _channels_last(maps)
        layer = _Layer(weight, gamma, beta)
        raw = _convolve(maps, layer, 1, _zeros(maps, 2 * len(gamma)), norm.eps)
        out = _finish(raw, norm, None, None)
        ctx.save_for_backward(maps, weight, gamma, beta, raw.maps, raw.sums, out)
        ctx.eps = norm.eps
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, out_gradient: Tensor) -> tuple[Tensor | None, ...]:
        maps, weight, gamma, beta, raw_maps, sums, out = ctx.saved_tensors
        raw = _Raw(raw_maps, sums, gamma, beta, ctx.eps)
        sizes = [2 * len(gamma), weight.numel()]
        back_sums, weight_gradient = _zeros(maps, sum(sizes)).split(sizes)
        g = _finish_back(out_gradient, out, raw, back_sums)
        gradients = _correlate(g, raw, back_sums, maps, weight, 1, weight_gradient)
        maps_gradient = None
        if ctx.needs_input_grad[0]:
            maps_gradient = _convolve_back(g, raw, back_sums, weight, maps, 1)
        return maps_gradient, *gradients, None


class _BasicBlock(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, maps: Tensor, stride: int, norms: tuple[Norm, ...], *parameters: Tensor) -> Tensor:
        maps = _channels_last(maps)
        layers = _layers(parameters)
        sums = _zeros(maps, len(layers), 2 * len(layers[0].gamma))
        first = _convolve(maps, layers[0], stride, sums[0], norms[0].eps)
        second = _convolve(first, layers[1], 1, sums[1], norms[1].eps)
        side = None
        if len(layers) == 3:
            side = _convolve(maps, layers[2], stride, sums[2], norms[2].eps)
        out = _finish(second, norms[1], maps if side is None else side, norms[-1], first, norms[0])
        side_maps = () if side is None else (side.maps,)
        ctx.save_for_backward(maps, out, sums, *parameters, first.maps, second.maps, *side_maps)
        ctx.stride, ctx.all_eps = stride, [norm.eps for norm in norms]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, out_gradient: Tensor) -> tuple[Tensor | None, ...]:
        maps, out, sums, *rest = ctx.saved_tensors
        num_layers, stride = len(ctx.all_eps), ctx.stride
        layers, raw_maps = _layers(rest[: 3 * num_layers]), rest[3 * num_layers :]
        weights = [layer.weight for layer in layers]
        raws = [
            _Raw(raw, layer_sums, layer.gamma, layer.beta, eps)
            for raw, layer_sums, layer, eps in zip(raw_maps, sums, layers, ctx.all_eps, strict=True)
        ]
        sizes = [sums.shape[1]] * num_layers + [weight.numel() for weight in weights]
        pieces = _zeros(maps, sum(sizes)).split(sizes)
        back_sums, weight_gradients = pieces[:num_layers], pieces[num_layers:]
        first, second = raws[:2]

        if num_layers == 2:
            g = beside = _finish_back(out_gradient, out, second, back_sums[1])
        else:
            g = _finish_back(out_gradient, out, second, back_sums[1], raws[2], back_sums[2])
            beside = _convolve_back(g, raws[2], back_sums[2], weights[2], maps, stride)
        first_g = _convolve_back(g, second, back_sums[1], weights[1], first, 1, x_back_sums=back_sums[0])
        maps_gradient = _convolve_back(first_g, first, back_sums[0], weights[0], maps, stride, add=beside)
        gradients = [
            *_correlate(first_g, first, back_sums[0], maps, weights[0], stride, weight_gradients[0]),
            *_correlate(g, second, back_sums[1], first, weights[1], 1, weight_gradients[1]),
        ]
        if num_layers == 3:
            gradients += _correlate(g, raws[2], back_sums[2], maps, weights[2], stride, weight_gradients[2])
        return maps_gradient, None, None, *gradients


def _layers(parameters: Sequence[Tensor]) -> list[_Layer]:
    return [_Layer._make(parameters[start : start + 3]) for start in range(0, len(parameters), 3)]


def _channels_last(maps: Tensor) -> Tensor:
    return maps.contiguous(memory_format=torch.channels_last)


def _zeros(like: Tensor, *shape: int) -> Tensor:
    return torch.zeros(shape, device=like.device)


def _empty(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, device=like.device, memory_format=torch.channels_last)


def _rows_of_a_program(num_rows: int) -> int:
    """Return how many rows a program computes: so many that the work is shared by the whole GPU."""
    for rows in (128, 64, 32):
        if num_rows >= 128 * rows:
            return rows
    return 16


def _depth(num_channels: int) -> int:
    """Return how many channels a program reads at a time: few steps, as each waits for the one before."""
    return max(16, min(MOST_DEPTH, triton.next_power_of_2(num_channels)))


def _source(x: Tensor | _Raw) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return maps, and what normalises them: something that is not read, where they are finished."""
    return (x, x, x, x) if isinstance(x, Tensor) else (x.maps, x.sums, x.gamma, x.beta)


def _convolve(x: Tensor | _Raw, layer: _Layer, stride: int, sums: Tensor, eps: float) -> _Raw:
    maps, *normalisation = _source(x)
    weight = layer.weight
    num_images, num_in, height, width = maps.shape
    num_out, side = weight.shape[0], weight.shape[2]
    out_height, out_width = -(-height // stride), -(-width // stride)
    y = _empty(maps, num_images, num_out, out_height, out_width)
    num_rows = num_images * out_height * out_width
    rows = _rows_of_a_program(num_rows)
    kernels.convolve[triton.cdiv(num_rows, rows), triton.cdiv(num_out, COLUMNS)](
        maps, *normalisation, num_images * height * width, _channels_last(weight), y, sums, num_rows, eps,
        height, width, out_height, out_width, num_in, num_out,
        side, stride, isinstance(x, _Raw), rows, COLUMNS, _depth(num_in),
    )  # fmt: skip
    return _Raw(y, sums, layer.gamma, layer.beta, eps)


def _convolve_back(
    g: Tensor,
    y: _Raw,
    back_sums: Tensor,
    weight: Tensor,
    x: Tensor | _Raw,
    stride: int,
    add: Tensor | None = None,
    x_back_sums: Tensor | None = None,
) -> Tensor:
    maps, *normalisation = _source(x)
    num_images, num_in, height, width = maps.shape
    _, num_out, out_height, out_width = y.maps.shape
    num_rows = num_images * height * width
    rows = _rows_of_a_program(num_rows)
    gradient = torch.empty_like(maps)
    kernels.convolve_back[triton.cdiv(num_rows, rows), triton.cdiv(num_in, COLUMNS)](
        g, y.maps, y.sums, back_sums, y.gamma, y.num_rows, _channels_last(weight), gradient,
        g if add is None else add, num_rows, y.eps,
        maps, *normalisation, back_sums if x_back_sums is None else x_back_sums,
        height, width, out_height, out_width, num_in, num_out,
        weight.shape[2], stride, add is not None, x_back_sums is not None, rows, COLUMNS, _depth(num_out),
    )  # fmt: skip
    return gradient


def _correlate(
    g: Tensor, y: _Raw, back_sums: Tensor, x: Tensor | _Raw, weight: Tensor, stride: int, gradient: Tensor
) -> list[Tensor]:
    """Return the gradients of the weights, which are added to zeros, of gamma and of beta."""
    maps, *normalisation = _source(x)
    num_images, num_in, height, width = maps.shape
    _, num_out, out_height, out_width = y.maps.shape
    side, rows = weight.shape[2], CORRELATE_ROWS
    kinds = side * side * triton.cdiv(num_in, COLUMNS), triton.cdiv(num_out, COLUMNS)
    num_parts = max(1, min(ENOUGH_PROGRAMS // (kinds[0] * kinds[1]), triton.cdiv(y.num_rows, rows)))
    num_steps = triton.cdiv(triton.cdiv(y.num_rows, num_parts), rows)
    gamma_gradient, beta_gradient = torch.empty_like(y.gamma), torch.empty_like(y.beta)
    kernels.correlate[*kinds, triton.cdiv(y.num_rows, num_steps * rows)](
        g, y.maps, y.sums, back_sums, y.gamma, y.num_rows, maps, *normalisation, num_images * height * width,
        gradient, gamma_gradient, beta_gradient, y.eps,
        height, width, out_height, out_width, num_in, num_out,
        side, stride, isinstance(x, _Raw), rows, COLUMNS, COLUMNS, num_steps,
    )  # fmt: skip
    as_weight = gradient.view(num_out, side, side, num_in).permute(0, 3, 1, 2)
    return [as_weight, gamma_gradient, beta_gradient]


def _finish(
    y: _Raw,
    norm: Norm,
    beside: Tensor | _Raw | None,
    beside_norm: Norm | None,
    first: _Raw | None = None,
    first_norm: Norm | None = None,
) -> Tensor:
    kind = NOTHING_BESIDE if beside is None else RAW if isinstance(beside, _Raw) else FINISHED
    out = torch.empty_like(y.maps)
    num_channels, rows = out.shape[1], _rows_of_a_program(y.num_rows)
    kernels.finish[triton.cdiv(y.num_rows, rows), triton.cdiv(num_channels, COLUMNS)](
        y.maps, y.sums, y.gamma, y.beta, *norm[:3],
        *_source(y.maps if beside is None else beside), *(beside_norm or norm)[:3],
        y.sums if first is None else first.sums, *(first_norm or norm)[:3],
        out, y.num_rows, y.eps, norm.momentum,
        num_channels, kind, first is not None, rows, COLUMNS,
    )  # fmt: skip
    return out


def _finish_back(
    out_gradient: Tensor,
    out: Tensor,
    y: _Raw,
    back_sums: Tensor,
    side: _Raw | None = None,
    side_back_sums: Tensor | None = None,
) -> Tensor:
    g = torch.empty_like(out)
    num_channels, rows = out.shape[1], _rows_of_a_program(y.num_rows)
    kernels.finish_back[triton.cdiv(y.num_rows, rows), triton.cdiv(num_channels, COLUMNS)](
        _channels_last(out_gradient), out, y.maps, back_sums,
        y.maps if side is None else side.maps, back_sums if side_back_sums is None else side_back_sums,
        g, y.num_rows, num_channels, NOTHING_BESIDE if side is None else RAW, rows, COLUMNS,
    )  # fmt: skip
    return g
