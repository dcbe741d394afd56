"""With LoRA, the model of a finished run without its adapter."""

import logging
import warnings
from pathlib import Path

import torch

from ..checkpoints.decision import copy_decision, is_of_other_weights, remove_decision
from ..checkpoints.run_files import ADAPTER, MODEL
from ..model.saving import save_model
from .build import Components

logger = logging.getLogger(__name__)


def merge_adapter(folder: Path, components: Components, step: int) -> None:
    """Add the adapter of the best checkpoint in a run folder, that of `step`, to the weights that the run
    began with, and write the sum there as a checkpoint of transformers, with its decision. Rank 0 calls it.
    Everything is read again from the disk, on the CPU in fp32."""
    from peft import PeftModel

    adapter = (folder / ADAPTER).parent
    with torch.random.fork_rng(devices=()), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        torch.manual_seed(components.config.train.seed)
        model = components.task.build_model().model
        merged = PeftModel.from_pretrained(model, adapter).merge_and_unload()

    has_other_decision = is_of_other_weights(folder, adapter, step)

    def remove_other_decision() -> None:
        if has_other_decision:
            remove_decision(folder)

    save_model(folder, merged, merged.state_dict(), components.tokenizer, remove_other_decision)
    if has_other_decision:
        copy_decision(adapter, folder, step)
    logger.info("Adapter merged into %s.", folder / MODEL)
