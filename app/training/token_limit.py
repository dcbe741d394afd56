"""How many tokens a second the matrix products of a run allow."""

from dataclasses import dataclass

import torch
from torch import nn

from ..model.read_tokens import ReadTokens
from ..modes.mode import Mode
from ..runtime.cores import measure_product_speed, product_speed
from ..runtime.devices import DTYPES
from .build import Components

# Each weight takes 2 operations for a token in the forward pass, and 4 in the backward pass
OPERATIONS_PER_WEIGHT = 6


@dataclass(frozen=True)
class TokenLimit:
    """The tokens a second that the matrix products of a run allow. A token needs so many `operations` on each
    of the run's devices, `device` and others like it, in `dtype`."""

    device: torch.device
    dtype: torch.dtype
    operations: float

    def tokens_per_second(self, again: bool = False) -> float:
        """Return the limit, of the speed that was measured first in this process, or is measured `again`."""
        if again:
            speed = measure_product_speed(self.device, self.dtype)
        else:
            speed = product_speed(self.device, self.dtype, torch.get_num_threads())
        return speed / self.operations


def token_limit(mode: Mode, components: Components) -> TokenLimit | None:
    """Return the limit of 6 operations for each token and weight of the linear layers that compute for all
    tokens (forward 2, backward 4). None where not all layers of the encoder are trained, or some are used
    several times in a pass."""
    encoder = components.model.model.base_model
    layers = layers_for_all_tokens(encoder)
    is_shared = hasattr(encoder.config, "num_hidden_groups")
    if is_shared or not all(layer.weight.requires_grad for layer in layers):
        return None
    skipped: set[nn.Module] = set()
    if components.loaders["train"].layout.packed:
        skipped = layers_of_read_tokens(encoder)
    num_weights = 0
    for layer in layers:
        if layer not in skipped:
            # The sizes are those of the layer: of sharded weights a process has only a part
            num_weights += layer.in_features * layer.out_features
    if not num_weights:
        return None
    devices_of_rank = getattr(mode.module, "device_ids", None) or [mode.device]
    num_devices = mode.group.world_size * len(devices_of_rank)
    operations = OPERATIONS_PER_WEIGHT * num_weights / num_devices
    dtype = DTYPES.get(components.config.train.precision, torch.float32)
    return TokenLimit(mode.device, dtype, operations)


def layers_for_all_tokens(encoder: nn.Module) -> list[nn.Linear]:
    """Return the linear layers of an encoder, without its pooler, which reads one token of a row."""
    layers = []
    for name, module in encoder.named_modules():
        if isinstance(module, nn.Linear) and not name.startswith("pooler"):
            layers.append(module)
    return layers


def layers_of_read_tokens(encoder: nn.Module) -> set[nn.Module]:
    """Return the modules that in packed batches compute only for the one token of a row that the head
    reads."""
    skipped: set[nn.Module] = set()
    for module in encoder.modules():
        if isinstance(module, ReadTokens):
            skipped.update(module.modules())
            for part in module.parts_for_all_tokens():
                skipped.difference_update(part.modules())
    return skipped
