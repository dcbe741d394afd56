"""`model.head linear` in a run: rank 0 fits the head on the training rows, and all ranks get it."""

import logging
import sys
import threading
import time

import torch
from tqdm import tqdm

from ..batching import BATCH_TOKENS, CPU_BATCH_TOKENS
from ..errors import counted
from ..model.linear_start import Tensors, fit_last_layer, set_last_layer
from ..modes.mode import Mode
from ..runtime.devices import Precision, has_memory
from .build import Components, choose_layout

logger = logging.getLogger(__name__)


def start_head(mode: Mode, components: Components, with_bar: bool = False) -> None:
    """Fit the head where model.head is linear. Every rank calls it, after `build` and before the mode wraps
    the model: rank 0 computes, on its device and in the precision of the run, and all ranks get the same
    weights. `with_bar`: a progress bar is shown where standard error is a terminal."""
    if components.config.model.head != "linear":
        return

    def fit() -> Tensors:
        return fit_head(mode, components, with_bar)

    set_last_layer(components.model, mode.group.on_rank_0(fit))


def fit_head(mode: Mode, components: Components, with_bar: bool) -> Tensors:
    """Return the parameters of the fitted layer, and log how long it took; rank 0 calls it."""
    config = components.config
    task = components.task
    model = components.model
    rows = components.dataset.splits["train"]
    device = mode.device
    if mode.is_sharded:
        # The whole model may be too large for the device
        device = torch.device("cpu")
    batch_tokens = CPU_BATCH_TOKENS
    if has_memory(device):
        batch_tokens = min(BATCH_TOKENS, config.train.micro_batch_tokens or BATCH_TOKENS)
    precision = Precision(config.train.precision, device, caches_casts=not mode.is_sharded)
    layout = choose_layout(model, config, device, packed=model.can_pack)
    loader = task.loader(rows, components.stores["train"], layout)
    logger.info(
        "model.head linear: the encoder reads %s, then a logistic regression is fitted.",
        counted(len(rows), "row"),
    )
    started = time.perf_counter()
    model.to(device)
    tqdm.set_lock(threading.RLock())
    is_shown = with_bar and sys.stderr.isatty()
    bar = tqdm(total=len(rows), unit="row", desc="linear head", disable=not is_shown, leave=False)
    with bar, precision.cached_autocast(), precision.autocast():
        parameters = fit_last_layer(
            model,
            loader,
            task.form.has_several,
            device,
            batch_tokens=batch_tokens,
            on_batch=bar.update,
        )
    logger.info(f"The linear head is fitted, after {time.perf_counter() - started:.0f} s.")
    return parameters
