"""Convolutions with batch normalisation worked into them, as Triton kernels.

A batch of twenty small images gives a GPU so little arithmetic that a step's time is the number of its
kernels. So a convolution here reads the raw result of the one before, normalises and rectifies it as it comes
in, and leaves the sums from which its own result will be normalised; the way back is done alike. All maps are
[N, H, W, C] in memory, in single precision; products are taken in TF32, as cuDNN takes them.

With x = sum over taps and channels, m the number of rows N H W, and for each channel of a convolution's
result y:

    sums        (sum y, sum y^2)                   mean = sum y / m, rate = 1 / sqrt(var + eps)
    normalised  gamma * rate * (y - mean) + beta
    back sums   (sum g, sum g y)                   g the gradient of the normalised value
    gradient    a g + b y + c                      of y; see `_gradient_of_raw`
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _normalisation(sums, gamma, beta, channel, inside, num_channels: tl.constexpr, num_rows, eps):
    """Return the factor and the summand that normalise a raw value of each channel."""
    mean = tl.load(sums + channel, mask=inside, other=0.0) / num_rows
    square = tl.load(sums + num_channels + channel, mask=inside, other=0.0) / num_rows
    rate = tl.rsqrt(tl.maximum(square - mean * mean, 0.0) + eps)
    factor = tl.load(gamma + channel, mask=inside, other=0.0) * rate
    return factor, tl.load(beta + channel, mask=inside, other=0.0) - mean * factor


@triton.jit
def _gradient_of_raw(sums, back_sums, gamma, channel, inside, num_channels: tl.constexpr, num_rows, eps):
    """Return a, b, c of each channel: the raw value's gradient is a g + b y + c."""
    mean = tl.load(sums + channel, mask=inside, other=0.0) / num_rows
    square = tl.load(sums + num_channels + channel, mask=inside, other=0.0) / num_rows
    rate = tl.rsqrt(tl.maximum(square - mean * mean, 0.0) + eps)
    sum_g = tl.load(back_sums + channel, mask=inside, other=0.0)
    sum_gy = tl.load(back_sums + num_channels + channel, mask=inside, other=0.0)
    a = tl.load(gamma + channel, mask=inside, other=0.0) * rate
    b = -a * rate * rate * (sum_gy - mean * sum_g) / num_rows
    return a, b, -a * sum_g / num_rows - b * mean


@triton.jit
def convolve(
    x, x_sums, x_gamma, x_beta, x_num_rows, weight, y, y_sums, num_rows, eps,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    NUM_IN: tl.constexpr, NUM_OUT: tl.constexpr,
    SIDE: tl.constexpr, STRIDE: tl.constexpr, NORMALISE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Convolve; where x is raw, normalise and rectify it first. Leave the sums of the result."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    image = row // (OUT_HEIGHT * OUT_WIDTH)
    top = row % (OUT_HEIGHT * OUT_WIDTH) // OUT_WIDTH * STRIDE - SIDE // 2
    left = row % OUT_WIDTH * STRIDE - SIDE // 2
    chunks: tl.constexpr = (NUM_IN + DEPTH - 1) // DEPTH
    channel = tl.arange(0, DEPTH)
    inside = channel < NUM_IN
    if NORMALISE:
        factor, summand = _normalisation(x_sums, x_gamma, x_beta, channel, inside, NUM_IN, x_num_rows, eps)
    result = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in range(SIDE * SIDE * chunks):
        tap = step // chunks
        if chunks > 1:
            channel = step % chunks * DEPTH + tl.arange(0, DEPTH)
            inside = channel < NUM_IN
            if NORMALISE:
                factor, summand = _normalisation(
                    x_sums, x_gamma, x_beta, channel, inside, NUM_IN, x_num_rows, eps
                )
        y_at, x_at = top + tap // SIDE, left + tap % SIDE
        there = (row < num_rows) & (y_at >= 0) & (y_at < HEIGHT) & (x_at >= 0) & (x_at < WIDTH)
        at = ((image * HEIGHT + y_at) * WIDTH + x_at)[:, None] * NUM_IN + channel[None, :]
        both = there[:, None] & inside[None, :]
        value = tl.load(x + at, mask=both, other=0.0)
        if NORMALISE:
            value = tl.where(both, tl.maximum(value * factor[None, :] + summand[None, :], 0.0), 0.0)
        at = column[None, :] * (SIDE * SIDE * NUM_IN) + tap * NUM_IN + channel[:, None]
        weights = tl.load(weight + at, mask=inside[:, None] & (column < NUM_OUT)[None, :], other=0.0)
        result = tl.dot(value, weights, result, input_precision="tf32")
    at = row[:, None] * NUM_OUT + column[None, :]
    tl.store(y + at, result, mask=(row < num_rows)[:, None] & (column < NUM_OUT)[None, :])
    # Rows beyond the last are zero, as nothing was loaded for them.
    tl.atomic_add(y_sums + column, tl.sum(result, 0), mask=column < NUM_OUT)
    tl.atomic_add(y_sums + NUM_OUT + column, tl.sum(result * result, 0), mask=column < NUM_OUT)


@triton.jit
def convolve_back(
    g, y, y_sums, y_back_sums, y_gamma, y_num_rows, weight, x_gradient, add, num_rows, eps,
    x, x_sums, x_gamma, x_beta, x_back_sums,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    NUM_IN: tl.constexpr, NUM_OUT: tl.constexpr,
    SIDE: tl.constexpr, STRIDE: tl.constexpr, ADD: tl.constexpr, NORMALISED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Give back the gradient of a convolution's input x, from the gradient g of its normalised result.

    ADD: add another gradient of the same input. NORMALISED: x was raw, and was normalised and rectified on
    the way in; then the gradient is that of the normalised value, and its sums are left.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    image = row // (HEIGHT * WIDTH)
    bottom = row % (HEIGHT * WIDTH) // WIDTH + SIDE // 2
    right = row % WIDTH + SIDE // 2
    chunks: tl.constexpr = (NUM_OUT + DEPTH - 1) // DEPTH
    channel = tl.arange(0, DEPTH)
    inside = channel < NUM_OUT
    a, b, c = _gradient_of_raw(y_sums, y_back_sums, y_gamma, channel, inside, NUM_OUT, y_num_rows, eps)
    result = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in range(SIDE * SIDE * chunks):
        tap = step // chunks
        if chunks > 1:
            channel = step % chunks * DEPTH + tl.arange(0, DEPTH)
            inside = channel < NUM_OUT
            a, b, c = _gradient_of_raw(
                y_sums, y_back_sums, y_gamma, channel, inside, NUM_OUT, y_num_rows, eps
            )
        y_at, x_at = bottom - tap // SIDE, right - tap % SIDE
        there = (row < num_rows) & (y_at >= 0) & (x_at >= 0)
        if STRIDE > 1:
            there = there & (y_at % STRIDE == 0) & (x_at % STRIDE == 0)
            y_at, x_at = y_at // STRIDE, x_at // STRIDE
        there = there & (y_at < OUT_HEIGHT) & (x_at < OUT_WIDTH)
        at = ((image * OUT_HEIGHT + y_at) * OUT_WIDTH + x_at)[:, None] * NUM_OUT + channel[None, :]
        both = there[:, None] & inside[None, :]
        value = a[None, :] * tl.load(g + at, mask=both, other=0.0)
        value += b[None, :] * tl.load(y + at, mask=both, other=0.0)
        value = tl.where(both, value + c[None, :], 0.0)
        at = channel[:, None] * (SIDE * SIDE * NUM_IN) + tap * NUM_IN + column[None, :]
        weights = tl.load(weight + at, mask=inside[:, None] & (column < NUM_IN)[None, :], other=0.0)
        result = tl.dot(value, weights, result, input_precision="tf32")
    at = row[:, None] * NUM_IN + column[None, :]
    both = (row < num_rows)[:, None] & (column < NUM_IN)[None, :]
    if ADD:
        result += tl.load(add + at, mask=both, other=0.0)
    if NORMALISED:
        raw = tl.load(x + at, mask=both, other=0.0)
        inside = column < NUM_IN
        factor, summand = _normalisation(x_sums, x_gamma, x_beta, column, inside, NUM_IN, num_rows, eps)
        result = tl.where(raw * factor[None, :] + summand[None, :] > 0.0, result, 0.0)
        result = tl.where(both, result, 0.0)
        tl.atomic_add(x_back_sums + column, tl.sum(result, 0), mask=inside)
        tl.atomic_add(x_back_sums + NUM_IN + column, tl.sum(result * raw, 0), mask=inside)
    tl.store(x_gradient + at, result, mask=both)


@triton.jit
def correlate(
    g, y, y_sums, y_back_sums, y_gamma, num_rows, x, x_sums, x_gamma, x_beta, x_num_rows,
    weight_gradient, gamma_gradient, beta_gradient, eps,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    NUM_IN: tl.constexpr, NUM_OUT: tl.constexpr,
    SIDE: tl.constexpr, STRIDE: tl.constexpr, NORMALISE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    NUM_STEPS: tl.constexpr,
):  # fmt: skip
    """Add up the gradient of a convolution's weights; give that of the normalisation behind it, too."""
    in_chunks: tl.constexpr = (NUM_IN + DEPTH - 1) // DEPTH
    tap = tl.program_id(0) // in_chunks
    into = tl.program_id(0) % in_chunks * DEPTH + tl.arange(0, DEPTH)
    out = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    out_inside, in_inside = out < NUM_OUT, into < NUM_IN
    a, b, c = _gradient_of_raw(y_sums, y_back_sums, y_gamma, out, out_inside, NUM_OUT, num_rows, eps)
    if NORMALISE:
        factor, summand = _normalisation(x_sums, x_gamma, x_beta, into, in_inside, NUM_IN, x_num_rows, eps)
    result = tl.zeros((COLUMNS, DEPTH), tl.float32)
    for step in range(NUM_STEPS):
        row = (tl.program_id(2) * NUM_STEPS + step) * ROWS + tl.arange(0, ROWS)
        at = row[:, None] * NUM_OUT + out[None, :]
        both = (row < num_rows)[:, None] & out_inside[None, :]
        gradient = a[None, :] * tl.load(g + at, mask=both, other=0.0)
        gradient += b[None, :] * tl.load(y + at, mask=both, other=0.0)
        gradient = tl.where(both, gradient + c[None, :], 0.0)
        image = row // (OUT_HEIGHT * OUT_WIDTH)
        y_at = row % (OUT_HEIGHT * OUT_WIDTH) // OUT_WIDTH * STRIDE - SIDE // 2 + tap // SIDE
        x_at = row % OUT_WIDTH * STRIDE - SIDE // 2 + tap % SIDE
        there = (row < num_rows) & (y_at >= 0) & (y_at < HEIGHT) & (x_at >= 0) & (x_at < WIDTH)
        at = ((image * HEIGHT + y_at) * WIDTH + x_at)[:, None] * NUM_IN + into[None, :]
        both = there[:, None] & in_inside[None, :]
        value = tl.load(x + at, mask=both, other=0.0)
        if NORMALISE:
            value = tl.where(both, tl.maximum(value * factor[None, :] + summand[None, :], 0.0), 0.0)
        result = tl.dot(tl.trans(gradient), value, result, input_precision="tf32")
    at = out[:, None] * (SIDE * SIDE * NUM_IN) + tap * NUM_IN + into[None, :]
    tl.atomic_add(weight_gradient + at, result, mask=out_inside[:, None] & in_inside[None, :])
    if (tl.program_id(0) == 0) & (tl.program_id(2) == 0):
        mean = tl.load(y_sums + out, mask=out_inside, other=0.0) / num_rows
        square = tl.load(y_sums + NUM_OUT + out, mask=out_inside, other=0.0) / num_rows
        rate = tl.rsqrt(tl.maximum(square - mean * mean, 0.0) + eps)
        sum_g = tl.load(y_back_sums + out, mask=out_inside, other=0.0)
        sum_gy = tl.load(y_back_sums + NUM_OUT + out, mask=out_inside, other=0.0)
        tl.store(gamma_gradient + out, rate * (sum_gy - mean * sum_g), mask=out_inside)
        tl.store(beta_gradient + out, sum_g, mask=out_inside)


@triton.jit
def _move_running(
    sums, mean_place, variance_place, num_batches, channel, inside, is_first,
    num_channels: tl.constexpr, num_rows, momentum,
):  # fmt: skip
    """Move a normalisation's running statistics toward the batch's, and let one program count the batch."""
    mean = tl.load(sums + channel, mask=inside, other=0.0) / num_rows
    square = tl.load(sums + num_channels + channel, mask=inside, other=0.0) / num_rows
    variance = tl.maximum(square - mean * mean, 0.0) * num_rows / (num_rows - 1)
    old = tl.load(mean_place + channel, mask=inside, other=0.0)
    tl.store(mean_place + channel, old + momentum * (mean - old), mask=inside)
    old = tl.load(variance_place + channel, mask=inside, other=0.0)
    tl.store(variance_place + channel, old + momentum * (variance - old), mask=inside)
    if is_first:
        tl.store(num_batches, tl.load(num_batches) + 1)


@triton.jit
def finish(
    y, sums, gamma, beta, mean, variance, num_batches,
    side, side_sums, side_gamma, side_beta, side_mean, side_variance, side_num_batches,
    first_sums, first_mean, first_variance, first_num_batches, out, num_rows, eps, momentum,
    NUM_CHANNELS: tl.constexpr, SIDE_KIND: tl.constexpr, HAS_FIRST: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Normalise a raw result, add what goes beside it, and rectify; move the running statistics.

    SIDE_KIND 0: nothing goes beside; 1: finished maps; 2: a raw result that is normalised, too. HAS_FIRST:
    there is another raw result of the same size whose running statistics are to be moved.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = channel < NUM_CHANNELS
    both = (row < num_rows)[:, None] & inside[None, :]
    at = row[:, None] * NUM_CHANNELS + channel[None, :]
    factor, summand = _normalisation(sums, gamma, beta, channel, inside, NUM_CHANNELS, num_rows, eps)
    value = tl.load(y + at, mask=both, other=0.0) * factor[None, :] + summand[None, :]
    if SIDE_KIND == 1:
        value += tl.load(side + at, mask=both, other=0.0)
    if SIDE_KIND == 2:
        factor, summand = _normalisation(
            side_sums, side_gamma, side_beta, channel, inside, NUM_CHANNELS, num_rows, eps
        )
        value += tl.load(side + at, mask=both, other=0.0) * factor[None, :] + summand[None, :]
    tl.store(out + at, tl.maximum(value, 0.0), mask=both)
    if tl.program_id(0) == 0:
        is_first = tl.program_id(1) == 0
        _move_running(
            sums, mean, variance, num_batches, channel, inside, is_first, NUM_CHANNELS, num_rows, momentum
        )
        if SIDE_KIND == 2:
            _move_running(
                side_sums, side_mean, side_variance, side_num_batches,
                channel, inside, is_first, NUM_CHANNELS, num_rows, momentum,
            )  # fmt: skip
        if HAS_FIRST:
            _move_running(
                first_sums, first_mean, first_variance, first_num_batches,
                channel, inside, is_first, NUM_CHANNELS, num_rows, momentum,
            )  # fmt: skip


@triton.jit
def finish_back(
    out_gradient, out, y, back_sums, side, side_back_sums, g, num_rows,
    NUM_CHANNELS: tl.constexpr, SIDE_KIND: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Give back the gradient g of what `finish` added up, with its sums for each raw result."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = channel < NUM_CHANNELS
    both = (row < num_rows)[:, None] & inside[None, :]
    at = row[:, None] * NUM_CHANNELS + channel[None, :]
    shown = tl.load(out + at, mask=both, other=0.0)
    gradient = tl.where(shown > 0.0, tl.load(out_gradient + at, mask=both, other=0.0), 0.0)
    tl.store(g + at, gradient, mask=both)
    sum_g = tl.sum(gradient, 0)
    tl.atomic_add(back_sums + channel, sum_g, mask=inside)
    sum_gy = tl.sum(gradient * tl.load(y + at, mask=both, other=0.0), 0)
    tl.atomic_add(back_sums + NUM_CHANNELS + channel, sum_gy, mask=inside)
    if SIDE_KIND == 2:
        tl.atomic_add(side_back_sums + channel, sum_g, mask=inside)
        sum_gy = tl.sum(gradient * tl.load(side + at, mask=both, other=0.0), 0)
        tl.atomic_add(side_back_sums + NUM_CHANNELS + channel, sum_gy, mask=inside)
