"""The end of a run with LoRA: an ordinary checkpoint beside the adapter."""

import logging
import warnings
from pathlib import Path

import torch

from ..checkpoints.run_folder import ADAPTER, MODEL
from ..model.pretrained import save_model
from .build import Components

logger = logging.getLogger(__name__)


def merge_adapter(folder: Path, components: Components) -> None:
    """Add the adapter of the best checkpoint in a run folder to the weights that the run began with, and
    write the sum there as a checkpoint of transformers. Rank 0 calls it. Everything is read again from the
    disk, on the CPU in fp32."""
    from peft import PeftModel

    with torch.random.fork_rng(devices=()), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        torch.manual_seed(components.config.train.seed)
        model = components.task.build_model(components.stores).model
        merged = PeftModel.from_pretrained(model, (folder / ADAPTER).parent).merge_and_unload()
    save_model(folder, merged, merged.state_dict(), components.tokenizer)
    logger.info("Adapter merged into %s.", folder / MODEL)
