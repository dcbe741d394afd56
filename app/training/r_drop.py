"""R-Drop: each row is in a pass twice, with other dropout, and the two predictions shall agree.

Wu et al. 2021, https://arxiv.org/abs/2106.14448. Their rows differ by dropout only, so this needs some.
"""

from collections.abc import Callable

import torch

# outputs, targets -> the sum of the losses
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class RDrop:
    """The loss of outputs of which the second half is of the same rows as the first.

    For each target it is the mean of its two losses plus `weight` times the loss's `divergence` of its two
    predictions. It depends on the two outputs of a target alone, so it is the same however rows are spread
    over processes and micro-batches.
    """

    def __init__(self, loss: Loss, weight: float) -> None:
        self.loss = loss
        self.weight = weight

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the sum over targets, without dimensions; `outputs` (2 * num_rows, num_labels)."""
        return self.loss(outputs, targets) / 2 + self.weight * self.loss.divergence(*outputs.chunk(2))
