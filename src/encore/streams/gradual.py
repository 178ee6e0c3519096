"""Classes that fade in and out instead of coming and going at once."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from encore.interfaces import Material
from encore.stream import Task
from encore.streams._classes import rows_by_class, tasks_of_classes
from encore.values import not_negative_number


class Gradual:
    """The frequency of each class rises and falls along the stream, highest in its own task.

    The classes of task t, with n_t training images, would come in the interval [s_t, s_t + n_t) of a stream
    that counts images, where s_t is the sum of the earlier n. Here each image gets a time of its own,

        time = s_t + n_t U + width * (N / T) * (V - 1/2),    U and V uniform on [0, 1),

    where N / T is the mean size of a task; a time outside [0, N) is reflected at the end that it passed.
    Images come in the order of their times, and task t has as many of them as without fading, n_t. So the
    density of a class along time is a trapezoid around its task: with tasks of equal size and a width up to 1
    it rises over `width` tasks, is flat over 1 - width, and falls over `width`. At width 1 it is a triangle,
    and 3/4 of the images of a class come in its task and 1/8 in each neighbour (7/8 and 1/8 at the ends of
    the stream). At any time all densities together are 1. Width 0 is class after class; the wider, the
    nearer to a stream that is shuffled as a whole. Test images stay with the task of their class.

    >>> labels = torch.arange(3000) % 3
    >>> rows = torch.arange(3000)
    >>> material = Material(labels, rows, rows, ((0,), (1,), (2,)), None, None, torch.Generator())
    >>> first, _, last = Gradual(width=1.0)(material)
    >>> [round(share, 1) for share in (labels[first.train].bincount() / 1000).tolist()]
    [0.9, 0.1]
    >>> len(first.train), len(last.train)
    (1000, 1000)
    """

    def __init__(
        self,
        width: Annotated[
            float, "how widely, in tasks, a class is strewn around its own; 0: not at all"
        ] = 1.0,
    ) -> None:
        self.width = not_negative_number("width", width)

    def __call__(self, material: Material) -> list[Task]:
        """Return a task for each group of classes."""
        homes = [torch.cat([material.train[:0], *rows]) for rows in rows_by_class(material)]
        sizes = torch.tensor([len(rows) for rows in homes])
        rows = torch.cat(homes)
        times = self._draw_times(sizes, material)
        in_order = rows[times.argsort(stable=True)]
        return tasks_of_classes(material, in_order.split(sizes.tolist()))

    def _draw_times(self, sizes: Tensor, material: Material) -> Tensor:
        """Return a time for each image, task after task: float64 [sum of sizes], from 0 to that sum."""
        num_images = int(sizes.sum())
        within, fading = torch.rand(2, num_images, generator=material.generator, dtype=torch.float64)
        starts = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
        spread = self.width * num_images / len(sizes)
        times = starts + sizes.repeat_interleave(sizes) * within + spread * (fading - 0.5)
        folded = times.remainder(2 * max(num_images, 1))  # there and back again
        return torch.minimum(folded, 2 * num_images - folded)
