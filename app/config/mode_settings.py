"""The settings of single modes, which are separate groups; see app/config/schema.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class DDPConfig:
    """For run_ddp.py and run_mp.py only."""

    compression: Literal["none", "fp16", "bf16"] = "none"
    """Precision in which gradients are sent: as they are (none) or half (half the bytes; weights differ
    slightly)."""
    wrapper: bool = True
    """Send gradients while backward computes, as torch's DistributedDataParallel does; false: all of them at
    once after the last backward pass, so that passes can be recorded as CUDA graphs.
    """


@dataclass(frozen=True)
class DeepSpeedConfig:
    """ZeRO, for run_deepspeed.py only; the rest of DeepSpeed's configuration follows from `train`."""

    stage: Literal[0, 1, 2, 3] = 2
    """What is partitioned across processes: 0 nothing, 1 optimizer states, 2 also gradients, 3 also
    parameters."""
    offload_optimizer: bool = False
    """Keep the optimizer states, and run the optimizer, in host memory."""
    config: str | None = None
    """DeepSpeed JSON file to merge in; its "auto" values are filled in from these settings, values that
    contradict them are refused.
    """


@dataclass(frozen=True)
class HorovodConfig:
    """For run_horovod.py only."""

    compression: Literal["none", "fp16"] = "none"
    """Precision in which gradients are sent: as they are (none) or half (half the bytes; weights differ
    slightly)."""
