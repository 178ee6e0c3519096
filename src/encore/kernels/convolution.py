"""Convolutions and the batch normalisation around them, as Triton kernels.

A batch of twenty small images gives a GPU so little arithmetic that a step's time is that of its many small
kernels. So a convolution here leaves the sums from which its result will be normalised, and one kernel
normalises, adds the shortcut, rectifies and moves the running statistics; the way back is done alike. Maps
are [N, H, W, C] in memory, in single precision; products are taken in TF32 where torch lets cuDNN do so.

With x a convolution's input, y its raw result, m the number of its rows N H W, and for each channel of y:

    sums        (sum y, sum y^2)           mean = sum y / m, rate = 1 / sqrt(sum y^2 / m - mean^2 + eps)
    normalised  z = gamma rate (y - mean) + beta
    back sums   (sum g, sum g y)           g the gradient of z
    gradient    dy = gamma rate (g - sum g / m - (y - mean) rate^2 (sum g y - mean sum g) / m)
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _statistics(sums, channel, inside, num_channels: tl.constexpr, num_rows):
    """Return the mean and the variance of each channel."""
    mean = tl.load(sums + channel, mask=inside, other=0.0) / num_rows
    square = tl.load(sums + num_channels + channel, mask=inside, other=0.0) / num_rows
    return mean, tl.maximum(square - mean * mean, 0.0)


@triton.jit
def convolve(
    x, weight, y, sums, num_rows,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    NUM_IN: tl.constexpr, NUM_OUT: tl.constexpr, SIDE: tl.constexpr, STRIDE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Convolve x, and add up the sums of the result."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    image = row // (OUT_HEIGHT * OUT_WIDTH)
    top = row % (OUT_HEIGHT * OUT_WIDTH) // OUT_WIDTH * STRIDE - SIDE // 2
    left = row % OUT_WIDTH * STRIDE - SIDE // 2
    chunks: tl.constexpr = (NUM_IN + DEPTH - 1) // DEPTH
    result = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in range(SIDE * SIDE * chunks):
        tap = step // chunks
        channel = step % chunks * DEPTH + tl.arange(0, DEPTH)
        y_at, x_at = top + tap // SIDE, left + tap % SIDE
        there = (row < num_rows) & (y_at >= 0) & (y_at < HEIGHT) & (x_at >= 0) & (x_at < WIDTH)
        at = ((image * HEIGHT + y_at) * WIDTH + x_at)[:, None] * NUM_IN + channel[None, :]
        value = tl.load(x + at, mask=there[:, None] & (channel < NUM_IN)[None, :], other=0.0)
        at = column[None, :] * (SIDE * SIDE * NUM_IN) + tap * NUM_IN + channel[:, None]
        weights = tl.load(
            weight + at, mask=(channel < NUM_IN)[:, None] & (column < NUM_OUT)[None, :], other=0.0
        )
        result = tl.dot(value, weights, result, input_precision=PRECISION)
    at = row[:, None] * NUM_OUT + column[None, :]
    tl.store(y + at, result, mask=(row < num_rows)[:, None] & (column < NUM_OUT)[None, :])
    # Rows beyond the last are zero, as nothing was loaded for them.
    tl.atomic_add(sums + column, tl.sum(result, 0), mask=column < NUM_OUT)
    tl.atomic_add(sums + NUM_OUT + column, tl.sum(result * result, 0), mask=column < NUM_OUT)


@triton.jit
def _move_running(
    sums, mean_place, variance_place, num_batches, channel, inside, is_first,
    num_channels: tl.constexpr, num_rows, momentum,
):  # fmt: skip
    """Move a normalisation's running statistics toward the batch's, and let one program count the batch."""
    mean, variance = _statistics(sums, channel, inside, num_channels, num_rows)
    variance = variance * num_rows / (num_rows - 1)
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
    out, num_rows, eps, momentum,
    NUM_CHANNELS: tl.constexpr, SIDE_KIND: tl.constexpr, MOVE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Normalise a raw result, add what goes beside it, and rectify; move the running statistics, if asked.

    SIDE_KIND 0: nothing goes beside; 1: finished maps; 2: a raw result that is normalised, too.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = channel < NUM_CHANNELS
    both = (row < num_rows)[:, None] & inside[None, :]
    at = row[:, None] * NUM_CHANNELS + channel[None, :]
    value = _normalise(y, at, both, sums, gamma, beta, channel, inside, NUM_CHANNELS, num_rows, eps)
    if SIDE_KIND == 1:
        value += tl.load(side + at, mask=both, other=0.0)
    if SIDE_KIND == 2:
        value += _normalise(
            side, at, both, side_sums, side_gamma, side_beta, channel, inside, NUM_CHANNELS, num_rows, eps
        )
    tl.store(out + at, tl.maximum(value, 0.0), mask=both)
    if MOVE:
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


@triton.jit
def _normalise(y, at, both, sums, gamma, beta, channel, inside, num_channels: tl.constexpr, num_rows, eps):
    mean, variance = _statistics(sums, channel, inside, num_channels, num_rows)
    factor = tl.load(gamma + channel, mask=inside, other=0.0) * tl.rsqrt(variance + eps)
    summand = tl.load(beta + channel, mask=inside, other=0.0) - mean * factor
    return tl.load(y + at, mask=both, other=0.0) * factor[None, :] + summand[None, :]


@triton.jit
def finish_back(
    out_gradient, out, y, back_sums, side, side_back_sums, g, num_rows,
    NUM_CHANNELS: tl.constexpr, HAS_SIDE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Give back the gradient g of what `finish` added up, and add up its sums with each raw result."""
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
    if HAS_SIDE:
        tl.atomic_add(side_back_sums + channel, sum_g, mask=inside)
        sum_gy = tl.sum(gradient * tl.load(side + at, mask=both, other=0.0), 0)
        tl.atomic_add(side_back_sums + NUM_CHANNELS + channel, sum_gy, mask=inside)


@triton.jit
def normalise_back(
    g, y, sums, back_sums, gamma, y_gradient, gamma_gradient, beta_gradient, num_rows, eps,
    NUM_CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Give back the gradient of a raw result and those of gamma and beta, once all sums are there."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = channel < NUM_CHANNELS
    both = (row < num_rows)[:, None] & inside[None, :]
    at = row[:, None] * NUM_CHANNELS + channel[None, :]
    mean, variance = _statistics(sums, channel, inside, NUM_CHANNELS, num_rows)
    rate = tl.rsqrt(variance + eps)
    sum_g = tl.load(back_sums + channel, mask=inside, other=0.0)
    sum_gy = tl.load(back_sums + NUM_CHANNELS + channel, mask=inside, other=0.0)
    a = tl.load(gamma + channel, mask=inside, other=0.0) * rate
    b = -a * rate * rate * (sum_gy - mean * sum_g) / num_rows
    c = -a * sum_g / num_rows - b * mean
    gradient = a[None, :] * tl.load(g + at, mask=both, other=0.0)
    gradient += b[None, :] * tl.load(y + at, mask=both, other=0.0) + c[None, :]
    tl.store(y_gradient + at, gradient, mask=both)
    if tl.program_id(0) == 0:
        tl.store(gamma_gradient + channel, rate * (sum_gy - mean * sum_g), mask=inside)
        tl.store(beta_gradient + channel, sum_g, mask=inside)


@triton.jit
def convolve_back(
    y_gradient, weight, x_gradient, add, x, raw, back_sums, rows_of_class, num_images,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    NUM_IN: tl.constexpr, NUM_OUT: tl.constexpr, SIDE: tl.constexpr, STRIDE: tl.constexpr,
    ADD: tl.constexpr, RECTIFIED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Give back the gradient of a convolution's input x.

    The pixels of x are taken in STRIDE^2 classes, as those at even and at odd places see different taps of
    the weights. ADD: add another gradient of the same input. RECTIFIED: x is what `finish` made of raw
    results; then give back the gradient of what it rectified, and add up the sums.
    """
    blocks = tl.cdiv(rows_of_class, ROWS)
    y_class, x_class = tl.program_id(0) // blocks // STRIDE, tl.program_id(0) // blocks % STRIDE
    row = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    half_height: tl.constexpr = (HEIGHT + STRIDE - 1) // STRIDE
    half_width: tl.constexpr = (WIDTH + STRIDE - 1) // STRIDE
    image = row // (half_height * half_width)
    y_of_x = row % (half_height * half_width) // half_width * STRIDE + y_class
    x_of_x = row % half_width * STRIDE + x_class
    exists = (image < num_images) & (y_of_x < HEIGHT) & (x_of_x < WIDTH)
    first_y, first_x = (y_class + SIDE // 2) % STRIDE, (x_class + SIDE // 2) % STRIDE
    num_y, num_x = (SIDE - first_y + STRIDE - 1) // STRIDE, (SIDE - first_x + STRIDE - 1) // STRIDE
    chunks: tl.constexpr = (NUM_OUT + DEPTH - 1) // DEPTH
    result = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in range(num_y * num_x * chunks):
        y_tap = first_y + step // chunks // num_x * STRIDE
        x_tap = first_x + step // chunks % num_x * STRIDE
        channel = step % chunks * DEPTH + tl.arange(0, DEPTH)
        # Both differences are multiples of the stride; they may be negative, where C rounds toward zero.
        y_twice, x_twice = y_of_x + SIDE // 2 - y_tap, x_of_x + SIDE // 2 - x_tap
        y_at, x_at = y_twice // STRIDE, x_twice // STRIDE
        there = exists & (y_twice >= 0) & (x_twice >= 0) & (y_at < OUT_HEIGHT) & (x_at < OUT_WIDTH)
        at = ((image * OUT_HEIGHT + y_at) * OUT_WIDTH + x_at)[:, None] * NUM_OUT + channel[None, :]
        value = tl.load(y_gradient + at, mask=there[:, None] & (channel < NUM_OUT)[None, :], other=0.0)
        tap = y_tap * SIDE + x_tap
        at = channel[:, None] * (SIDE * SIDE * NUM_IN) + tap * NUM_IN + column[None, :]
        weights = tl.load(
            weight + at, mask=(channel < NUM_OUT)[:, None] & (column < NUM_IN)[None, :], other=0.0
        )
        result = tl.dot(value, weights, result, input_precision=PRECISION)
    at = ((image * HEIGHT + y_of_x) * WIDTH + x_of_x)[:, None] * NUM_IN + column[None, :]
    both = exists[:, None] & (column < NUM_IN)[None, :]
    if ADD:
        result += tl.load(add + at, mask=both, other=0.0)
    if RECTIFIED:
        result = tl.where(tl.load(x + at, mask=both, other=0.0) > 0.0, result, 0.0)
        raw_value = tl.load(raw + at, mask=both, other=0.0)
        tl.atomic_add(back_sums + column, tl.sum(result, 0), mask=column < NUM_IN)
        tl.atomic_add(back_sums + NUM_IN + column, tl.sum(result * raw_value, 0), mask=column < NUM_IN)
    tl.store(x_gradient + at, result, mask=both)


@triton.jit
def correlate(
    y_gradient, x, weight_gradient, num_rows, num_steps,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    NUM_IN: tl.constexpr, NUM_OUT: tl.constexpr, SIDE: tl.constexpr, STRIDE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add up the gradient of a convolution's weights."""
    in_chunks: tl.constexpr = (NUM_IN + DEPTH - 1) // DEPTH
    tap = tl.program_id(0) // in_chunks
    into = tl.program_id(0) % in_chunks * DEPTH + tl.arange(0, DEPTH)
    out = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    result = tl.zeros((COLUMNS, DEPTH), tl.float32)
    for step in range(num_steps):
        row = (tl.program_id(2) * num_steps + step) * ROWS + tl.arange(0, ROWS)
        at = row[None, :] * NUM_OUT + out[:, None]
        gradient = tl.load(
            y_gradient + at, mask=(row < num_rows)[None, :] & (out < NUM_OUT)[:, None], other=0.0
        )
        image = row // (OUT_HEIGHT * OUT_WIDTH)
        y_at = row % (OUT_HEIGHT * OUT_WIDTH) // OUT_WIDTH * STRIDE - SIDE // 2 + tap // SIDE
        x_at = row % OUT_WIDTH * STRIDE - SIDE // 2 + tap % SIDE
        there = (row < num_rows) & (y_at >= 0) & (y_at < HEIGHT) & (x_at >= 0) & (x_at < WIDTH)
        at = ((image * HEIGHT + y_at) * WIDTH + x_at)[:, None] * NUM_IN + into[None, :]
        value = tl.load(x + at, mask=there[:, None] & (into < NUM_IN)[None, :], other=0.0)
        result = tl.dot(gradient, value, result, input_precision=PRECISION)
    at = out[:, None] * (SIDE * SIDE * NUM_IN) + tap * NUM_IN + into[None, :]
    tl.atomic_add(weight_gradient + at, result, mask=(out < NUM_OUT)[:, None] & (into < NUM_IN)[None, :])
