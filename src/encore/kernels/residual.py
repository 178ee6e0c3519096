"""The pieces of a residual network, each with its way back, on the kernels of convolution.py.

`stem` is a convolution, normalised and rectified; `basic_block` is two of them beside a shortcut. In training
mode both give what the modules give, but for rounding, with a fraction of the kernels. The gradients of the
weights, which nothing waits for, are queued beside the rest; what they read keeps a name until they are done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from encore import side_stream
from encore.kernels import convolution as kernels

MOST_ROWS = 128  # pixels that a program computes
COLUMNS = 32  # channels that it computes
MOST_DEPTH = 32  # channels that it reads at a time
CORRELATE_ROWS = 64  # pixels that a step toward the weights' gradient adds up
ENOUGH_PROGRAMS = 288  # about two for each multiprocessor of a large GPU
NOTHING_BESIDE, FINISHED, RAW = range(3)  # what goes beside the last convolution of a piece


class _Norm(NamedTuple):
    """The numbers of a batch normalisation that are no parameters."""

    mean: Tensor  # the running statistics, which are moved in place
    variance: Tensor
    num_batches: Tensor
    eps: float
    momentum: float
    moves: bool  # whether this pass may move them


class _Layer(NamedTuple):
    """The parameters of a convolution and of the normalisation behind it."""

    weight: Tensor
    gamma: Tensor
    beta: Tensor


class _Raw(NamedTuple):
    """A convolution's result, and what normalises it."""

    maps: Tensor  # [N, C, H, W]
    sums: Tensor  # float32 [2 C]: of the values, and of their squares
    layer: _Layer
    norm: _Norm


def stem(maps: Tensor, convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> Tensor:
    """Return the convolved, normalised and rectified maps."""
    out: Tensor = _Stem.apply(maps, _norm_of(norm), convolution.weight, norm.weight, norm.bias)
    return out


def basic_block(maps: Tensor, layers: Sequence[tuple[nn.Conv2d, nn.BatchNorm2d]]) -> Tensor:
    """Return what two convolutions and a shortcut make of the maps; a third layer is the shortcut's."""
    parameters = [
        value for convolution, norm in layers for value in (convolution.weight, norm.weight, norm.bias)
    ]
    norms = tuple(_norm_of(norm) for _, norm in layers)
    out: Tensor = _BasicBlock.apply(maps, layers[0][0].stride[0], norms, *parameters)
    return out


def _norm_of(norm: nn.BatchNorm2d) -> _Norm:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    return _Norm(
        norm.running_mean,
        norm.running_var,
        norm.num_batches_tracked,
        norm.eps,
        norm.momentum,
        norm.track_running_stats,
    )


class _Stem(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, maps: Tensor, norm: _Norm, *parameters: Tensor) -> Tensor:
        maps, layer = _channels_last(maps), _Layer._make(parameters)
        raw = _convolve(maps, layer, 1, _zeros(maps, 2 * len(layer.gamma)), norm)
        out = _finish(raw)
        ctx.save_for_backward(maps, out, raw.maps, raw.sums, *parameters)
        ctx.norm = norm
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, out_gradient: Tensor) -> tuple[Tensor | None, ...]:
        maps, out, raw_maps, sums, *parameters = ctx.saved_tensors
        layer = _Layer._make(parameters)
        raw = _Raw(raw_maps, sums, layer, ctx.norm)
        sizes = [2 * len(layer.gamma), layer.weight.numel()]
        back_sums, weight_gradient = _zeros(maps, sum(sizes)).split(sizes)
        g = _finish_back(out_gradient, out, raw, back_sums)
        raw_gradient, *norm_gradients = _normalise_back(g, raw, back_sums)
        beside = side_stream.side_stream_of(maps.device)
        with beside.begin(maps.device):
            weight_gradient = _correlate(raw_gradient, maps, layer.weight, 1, weight_gradient)
        maps_gradient = None
        if ctx.needs_input_grad[0]:
            maps_gradient = _convolve_back(raw_gradient, layer.weight, maps, 1)
        beside.wait()
        return maps_gradient, None, weight_gradient, *norm_gradients


class _BasicBlock(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, maps: Tensor, stride: int, norms: tuple[_Norm, ...], *parameters: Tensor) -> Tensor:
        maps, layers = _channels_last(maps), _layers(parameters)
        sums = _zeros(maps, len(layers), 2 * len(layers[0].gamma))
        first = _convolve(maps, layers[0], stride, sums[0], norms[0])
        between = _finish(first)
        raws = [first, _convolve(between, layers[1], 1, sums[1], norms[1])]
        if len(layers) == 3:
            raws.append(_convolve(maps, layers[2], stride, sums[2], norms[2]))
        out = _finish(raws[1], beside=raws[2] if len(layers) == 3 else maps)
        ctx.save_for_backward(maps, between, out, sums, *parameters, *(raw.maps for raw in raws))
        ctx.stride, ctx.norms = stride, norms
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, out_gradient: Tensor) -> tuple[Tensor | None, ...]:
        maps, between, out, sums, *rest = ctx.saved_tensors
        stride, num_layers = ctx.stride, len(ctx.norms)
        layers, raw_maps = _layers(rest[: 3 * num_layers]), rest[3 * num_layers :]
        weights = [layer.weight for layer in layers]
        raws = [_Raw(*parts) for parts in zip(raw_maps, sums, layers, ctx.norms, strict=True)]
        sizes = [sums.shape[1]] * num_layers + [weight.numel() for weight in weights]
        pieces = _zeros(maps, sum(sizes)).split(sizes)
        back_sums, weight_gradients = pieces[:num_layers], pieces[num_layers:]

        beside = side_stream.side_stream_of(maps.device)
        shortcut_gradients: list[Tensor] = []
        if num_layers == 2:
            through_shortcut = g = _finish_back(out_gradient, out, raws[1], back_sums[1])
        else:
            g = _finish_back(out_gradient, out, raws[1], back_sums[1], raws[2], back_sums[2])
            shortcut_gradient, *shortcut_norm = _normalise_back(g, raws[2], back_sums[2])
            with beside.begin(maps.device):
                weight = _correlate(shortcut_gradient, maps, weights[2], stride, weight_gradients[2])
            through_shortcut = _convolve_back(shortcut_gradient, weights[2], maps, stride)
            shortcut_gradients = [weight, *shortcut_norm]
        second_gradient, *second_norm = _normalise_back(g, raws[1], back_sums[1])
        with beside.begin(maps.device):
            second_weight = _correlate(second_gradient, between, weights[1], 1, weight_gradients[1])
        g = _convolve_back(second_gradient, weights[1], between, 1, raw=raws[0], back_sums=back_sums[0])
        first_gradient, *first_norm = _normalise_back(g, raws[0], back_sums[0])
        with beside.begin(maps.device):
            first_weight = _correlate(first_gradient, maps, weights[0], stride, weight_gradients[0])
        maps_gradient = _convolve_back(first_gradient, weights[0], maps, stride, add=through_shortcut)
        beside.wait()
        gradients = [first_weight, *first_norm, second_weight, *second_norm, *shortcut_gradients]
        return maps_gradient, None, None, *gradients


def _layers(parameters: Sequence[Tensor]) -> list[_Layer]:
    return [_Layer._make(parameters[start : start + 3]) for start in range(0, len(parameters), 3)]


def _channels_last(maps: Tensor) -> Tensor:
    return maps.contiguous(memory_format=torch.channels_last)


def _zeros(like: Tensor, *shape: int) -> Tensor:
    return torch.zeros(shape, device=like.device)


def _num_rows(maps: Tensor) -> int:
    return maps.numel() // maps.shape[1]


def _rows_of_a_program(num_rows: int) -> int:
    """Return how many rows a program computes: so many that the work is shared by the whole GPU."""
    rows = MOST_ROWS
    while rows > 16 and num_rows < 128 * rows:
        rows //= 2
    return rows


def _precision() -> str:
    return "tf32" if torch.backends.cudnn.allow_tf32 else "ieee"


def _depth(num_channels: int) -> int:
    """Return how many channels a program reads at a time."""
    depth: int = min(MOST_DEPTH, triton.next_power_of_2(num_channels))
    return max(16, depth)


def _convolve(maps: Tensor, layer: _Layer, stride: int, sums: Tensor, norm: _Norm) -> _Raw:
    num_images, num_in, height, width = maps.shape
    num_out, _, side, _ = layer.weight.shape
    out_shape = num_images, num_out, -(-height // stride), -(-width // stride)
    y = torch.empty(out_shape, device=maps.device, memory_format=torch.channels_last)
    rows = _rows_of_a_program(_num_rows(y))
    kernels.convolve[triton.cdiv(_num_rows(y), rows), triton.cdiv(num_out, COLUMNS)](
        maps, _channels_last(layer.weight), y, sums, _num_rows(y),
        height, width, *out_shape[2:], num_in, num_out, side, stride,
        rows, COLUMNS, _depth(num_in), _precision(),
    )  # fmt: skip
    return _Raw(y, sums, layer, norm)


def _finish(y: _Raw, beside: Tensor | _Raw | None = None) -> Tensor:
    out, side = torch.empty_like(y.maps), y
    kind = NOTHING_BESIDE if beside is None else FINISHED
    side_maps = beside if isinstance(beside, Tensor) else y.maps
    if isinstance(beside, _Raw):
        side, side_maps, kind = beside, beside.maps, RAW
    num_channels, rows = out.shape[1], _rows_of_a_program(_num_rows(out))
    kernels.finish[triton.cdiv(_num_rows(out), rows), triton.cdiv(num_channels, COLUMNS)](
        y.maps, y.sums, *y.layer[1:], *y.norm[:3], side_maps, side.sums, *side.layer[1:], *side.norm[:3],
        out, _num_rows(out), y.norm.eps, y.norm.momentum, num_channels, kind, y.norm.moves, rows, COLUMNS,
    )  # fmt: skip
    return out


def _finish_back(
    out_gradient: Tensor,
    out: Tensor,
    y: _Raw,
    back_sums: Tensor,
    side: _Raw | None = None,
    side_sums: Tensor | None = None,
) -> Tensor:
    g = torch.empty_like(out)
    num_channels, rows = out.shape[1], _rows_of_a_program(_num_rows(out))
    beside = (y.maps, back_sums) if side is None else (side.maps, side_sums)
    kernels.finish_back[triton.cdiv(_num_rows(out), rows), triton.cdiv(num_channels, COLUMNS)](
        _channels_last(out_gradient), out, y.maps, back_sums, *beside, g, _num_rows(out),
        num_channels, side is not None, rows, COLUMNS,
    )  # fmt: skip
    return g


def _normalise_back(g: Tensor, y: _Raw, back_sums: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of the raw maps, of gamma and of beta."""
    gradient, gamma, beta = (
        torch.empty_like(g),
        torch.empty_like(y.layer.gamma),
        torch.empty_like(y.layer.beta),
    )
    num_channels, rows = g.shape[1], _rows_of_a_program(_num_rows(g))
    kernels.normalise_back[triton.cdiv(_num_rows(g), rows), triton.cdiv(num_channels, COLUMNS)](
        g, y.maps, y.sums, back_sums, y.layer.gamma, gradient, gamma, beta, _num_rows(g), y.norm.eps,
        num_channels, rows, COLUMNS,
    )  # fmt: skip
    return gradient, gamma, beta


def _convolve_back(
    y_gradient: Tensor,
    weight: Tensor,
    x: Tensor,
    stride: int,
    add: Tensor | None = None,
    raw: _Raw | None = None,
    back_sums: Tensor | None = None,
) -> Tensor:
    """Return the gradient of x; if x was made of a raw result, that of what was rectified then."""
    num_images, num_in, height, width = x.shape
    _, num_out, *out_sides = y_gradient.shape
    rows_of_class = num_images * -(-height // stride) * -(-width // stride)
    rows = _rows_of_a_program(rows_of_class * stride**2)
    gradient = torch.empty_like(x)
    kernels.convolve_back[triton.cdiv(rows_of_class, rows) * stride**2, triton.cdiv(num_in, COLUMNS)](
        y_gradient, _channels_last(weight), gradient, x if add is None else add, x,
        x if raw is None else raw.maps, x if back_sums is None else back_sums, rows_of_class, num_images,
        height, width, *out_sides, num_in, num_out, weight.shape[2], stride,
        add is not None, raw is not None, rows, COLUMNS, _depth(num_out), _precision(),
    )  # fmt: skip
    return gradient


def _correlate(y_gradient: Tensor, x: Tensor, weight: Tensor, stride: int, gradient: Tensor) -> Tensor:
    """Add the gradient of the weights to zeros [weight.numel()], and return it in their shape."""
    _, num_in, height, width = x.shape
    num_rows, (_, num_out, *out_sides), side = _num_rows(y_gradient), y_gradient.shape, weight.shape[2]
    kinds = side * side * triton.cdiv(num_in, COLUMNS), triton.cdiv(num_out, COLUMNS)
    num_parts = max(1, min(ENOUGH_PROGRAMS // (kinds[0] * kinds[1]), triton.cdiv(num_rows, CORRELATE_ROWS)))
    num_steps = triton.cdiv(triton.cdiv(num_rows, num_parts), CORRELATE_ROWS)
    kernels.correlate[*kinds, triton.cdiv(num_rows, num_steps * CORRELATE_ROWS)](
        y_gradient, x, gradient, num_rows, num_steps,
        height, width, *out_sides, num_in, num_out, side, stride, CORRELATE_ROWS, COLUMNS, COLUMNS,
        _precision(),
    )  # fmt: skip
    return gradient.view(num_out, side, side, num_in).permute(0, 3, 1, 2)
