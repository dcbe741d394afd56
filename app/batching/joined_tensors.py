"""Tensors end to end in one buffer of bytes, so that one copy brings all of them to a device."""

from dataclasses import dataclass

import torch

ALIGNMENT = 16  # bytes; a view of a buffer must begin at a multiple of the size of its numbers


@dataclass(frozen=True)
class Place:
    """Where a tensor is in a buffer, from the byte `start` on."""

    start: int
    shape: torch.Size
    dtype: torch.dtype

    @property
    def end(self) -> int:
        return self.start + self.shape.numel() * self.dtype.itemsize

    def view(self, buffer: torch.Tensor) -> torch.Tensor:
        """Return the tensor at this place of a buffer, as a view."""
        return buffer[self.start : self.end].view(self.dtype).view(self.shape)


def places_of(tensors: dict[str, torch.Tensor]) -> dict[str, Place]:
    """Return the place of each tensor in a buffer, in the order of the dictionary."""
    places = {}
    end = 0
    for name, tensor in tensors.items():
        start = -(-end // ALIGNMENT) * ALIGNMENT
        places[name] = Place(start, tensor.shape, tensor.dtype)
        end = places[name].end
    return places


def joined(tensors: dict[str, torch.Tensor], places: dict[str, Place], pinned: bool = False) -> torch.Tensor:
    """Return tensors of the host in one buffer, (bytes,) uint8. Pinned memory can be copied to CUDA without
    waiting; torch uses it again only after the copy."""
    num_bytes = max(place.end for place in places.values())
    buffer = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=pinned)
    for name, tensor in tensors.items():
        places[name].view(buffer).copy_(tensor)
    return buffer


def views_of(buffer: torch.Tensor, places: dict[str, Place]) -> dict[str, torch.Tensor]:
    return {name: place.view(buffer) for name, place in places.items()}
