"""The end of a run with LoRA: an ordinary checkpoint beside the adapter, which must predict the same."""

import logging
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ..checkpoints.run_folder import ADAPTER, MODEL
from ..errors import TrainingError
from ..model.classifier import Classifier
from ..model.pretrained import load_weights, save_model
from ..model.source import checkpoint_config, quiet_transformers
from ..report.logits_file import split_of_report
from .build import Components

logger = logging.getLogger(__name__)
ROWS = 32  # of the report, which are compared
# Additions in another order make logits differ by this, relative to the largest, in fp32.
TOLERANCE = 1e-4


def merge_adapter(folder: Path, components: Components) -> None:
    """Add the adapter of the best checkpoint in a run folder to the weights that the run began with, and
    write the sum there as a checkpoint of transformers. Rank 0 calls it.

    Everything is read again from the disk, on the CPU in fp32. Raises TrainingError, and writes no model,
    where the logits of the first rows of the report differ beyond rounding.
    """
    from peft import PeftModel

    config, loader = components.config, components.loaders[split_of_report(components.loaders)]
    batch = loader.load(np.arange(min(ROWS, len(loader))), torch.device("cpu"))

    def logits(model: nn.Module) -> torch.Tensor:
        with torch.no_grad():
            return model.eval()(**batch.inputs)

    with torch.random.fork_rng(devices=()), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        torch.manual_seed(config.train.seed)
        classifier = components.task.build_model(components.stores)
        adapted = PeftModel.from_pretrained(classifier.model, (folder / ADAPTER).parent)
    before = logits(classifier)
    merged = adapted.merge_and_unload()
    save_model(folder, merged, merged.state_dict(), components.tokenizer)
    with quiet_transformers():
        model, _ = load_weights(folder, checkpoint_config(folder))
    difference = float((logits(Classifier(model)) - before).abs().max())
    largest = float(before.abs().max())
    if not difference <= TOLERANCE * max(1.0, largest):
        (folder / MODEL).unlink()
        raise TrainingError(
            f"the merged model must have the logits of the model with its adapter, found a difference of "
            f"{difference:.2g} at logits up to {largest:.3g}; {folder / ADAPTER} is kept, which peft reads"
        )
    logger.info(
        "Adapter merged into %s: logits of %d rows differ by at most %.1e.",
        *(folder / MODEL, batch.num_rows, difference),
    )
