"""The shapes of recorded passes, chosen before the first step from the sizes of all micro-batches of a
training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

import numpy as np

from ..batching.buckets import Bucket, choose_buckets
from ..batching.loader import Loader
from ..batching.plan import BatchPlan
from .out_of_memory import MicroBatches

# That are looked at; rows come in random order, so that later micro-batches have similar sizes
MAX_STEPS = 100_000


class PlannedShapes:
    """Chooses the buckets to which a loader fills up its batches.

    They depend on the plan, on its number of steps and on the rows of a micro-batch, not on the step at which
    a run starts. So a resumed run has the same batches as one that was never stopped, to the last bit.
    """

    def __init__(self, loader: Loader, plan: BatchPlan, steps: int, micro_batches: MicroBatches) -> None:
        self.loader = loader
        self.plan = plan
        self.steps = steps
        self.micro_batches = micro_batches

    @cached_property
    def lengths(self) -> np.ndarray:
        """The tokens of each row, (num_rows,): read once, because each step asks for some."""
        return self.loader.lengths()

    def choose(self) -> list[tuple[int, int]]:
        """Choose the loader's buckets for micro-batches of the present size.

        Returns where a micro-batch of each bucket is: its step and its index in it; most tokens first.
        Without buckets, that of the first micro-batch.
        """
        places, sizes = [], []
        for step in range(min(self.steps, MAX_STEPS)):
            for index, positions in enumerate(self.cut(step)):
                # A stand-in row: recorded when it comes for the second time
                if not len(positions):
                    continue
                lengths = self.lengths[positions]
                places.append((step, index))
                sizes.append((len(lengths), lengths.sum(), lengths.max()))
        buckets = choose_buckets(*np.array(sizes, np.int64).reshape(-1, 3).T)
        self.set_buckets(buckets)
        largest_first = sorted(buckets, key=lambda bucket: -bucket.tokens)
        return [places[buckets[bucket]] for bucket in largest_first] or [(0, 0)]

    def cut(self, step: int) -> list[np.ndarray]:
        """Return the micro-batches of a step, as arrays of row positions."""
        batch = self.plan.batch(step)
        return self.micro_batches.cut(batch, self.lengths[batch])

    def set_buckets(self, buckets: Iterable[Bucket]) -> None:
        """Let the loader fill up its batches to these buckets; without any, it rounds their sizes."""
        self.loader.layout = replace(self.loader.layout, buckets=tuple(buckets))
