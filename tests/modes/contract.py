"""One rank of the contract suite: trains cases in one mode as `python -m app verify` does; rank 0 writes what
came out. tests/modes/test_contract.py forks it."""

from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from app import modes
from app.checkpoints.progress import RunProgress
from app.config.command_line import load_config
from app.config.schema import Config
from app.modes import load_mode
from app.modes.mode import Mode
from app.runs.verify_result import CONTROL, result_file
from app.runs.verify_training import train_and_write
from app.training.build import build
from app.training.step import train_steps
from app.training.step_results import StepResult
from tests.modes import broken_modes

# An epoch has 3 steps, the last of 5 rows. The processes of other tests may need the other cores.
BASE = "batch_size=16 epochs=10 max_steps=4 warmup=0 threads=1 device=cpu optimizer=sgd learning_rate=0.1 "
BASE += "precision=fp32 data.limit=37 data.dev_size=0 data.test_size=0 data.max_length=32 model.dropout=0.2 "
BASE += "model.config.hidden_size=32 model.config.num_hidden_layers=2 model.config.num_attention_heads=2 "
BASE += "model.config.intermediate_size=64 model.head=random model.name=random "
# The file of each task, and how it is read; masked language modelling does not read the labels
FILES = {
    **dict.fromkeys(("single_label", "ordinal"), "data.train={}/data.tsv data.labels=[a,b,c] "),
    "multi_label": "data.train={}/sets.tsv data.labels=[a,b,c] data.label_separator=| ",
    "regression": "data.train={}/scores.tsv ",
    "masked_language_modelling": "data.train={}/data.tsv data.format=tsv data.text_column=0 "
    "data.header=false model.vocab_file={}/vocab.txt ",
}
TWO = "accumulation_steps=2 "
THREE = "accumulation_steps=3 "  # three do not divide the batch
CLIPPED = "max_grad_norm=0.05 "
ADAMW = "optimizer=adamw learning_rate=1e-3 "
WEIGHTS = "class_weights=[0.5,2,1] "
TINY = "data.limit=33 "  # one row in the last global batch
# A row has one, two or three
WINDOWS = "data.long=windows data.max_length=10 data.max_windows=3 "
DECODER = "model.architecture=qwen3 model.config.num_key_value_heads=1 model.config.head_dim=16 "
MODERNBERT = "model.architecture=modernbert "
ALBERT = "model.architecture=albert model.config.embedding_size=16 "
MULTI = "data.task=multi_label "
SOFT = "data.train={}/soft.csv "
SOFT_SETS = MULTI + "data.train={}/soft_sets.csv "
MASKED = "data.task=masked_language_modelling "

# Settings, of `train` where they name no group; batches are padded where the name says so, and a case whose
# name begins with a precision is computed in it, all others in float64
CASES = {
    "sgd": "",
    "adamw": ADAMW + "schedule=cosine warmup=2",
    "accumulation_2": TWO,
    "accumulation_3": THREE,
    "accumulation_adamw": THREE + ADAMW,
    "tiny_last_batch": TWO + TINY,
    "padded": TWO,
    "weighted": TWO + WEIGHTS,
    "clipped": TWO + CLIPPED,
    "fp32": CLIPPED,
    "bf16": CLIPPED + "precision=bf16",
    "fp16": CLIPPED + "precision=fp16",
    "fp16_overflow": CLIPPED + "max_steps=5 precision=fp16 schedule=linear",
    "windows": THREE + WINDOWS,
    "windows_padded": WINDOWS,
    "multi_label": THREE + MULTI + "class_weights=[2,0.5,1]",
    "regression": THREE + TINY + "data.task=regression",
    "huber_padded": "loss=huber data.task=regression",
    "ordinal": THREE + WEIGHTS + TINY + "data.task=ordinal",
    "focal": TWO + WEIGHTS + "loss=focal",
    "logit_adjusted": THREE + TINY + "loss=logit_adjusted",
    "soft": THREE + TINY + SOFT,
    "soft_weighted_padded": TWO + WEIGHTS + SOFT,
    "soft_multi_label": THREE + SOFT_SETS + "class_weights=[2,0.5,1]",
    "soft_adamw": ADAMW + SOFT,
    "soft_linear_head": TWO + SOFT + "model.head=linear",
    "frozen_embeddings_padded": TWO + TINY + "model.freeze=embeddings",
    "frozen_encoder_adamw": ADAMW + "model.freeze=encoder",
    # Of two ranks one has no row
    "empty_shard_adamw": ADAMW + TINY,
    "decoder": THREE + TINY + DECODER,
    # In bf16, states between layers have another dtype than in BERT
    "bf16_decoder": CLIPPED + DECODER + "precision=bf16",
    "bf16_regression": CLIPPED + "data.task=regression precision=bf16",
    "bf16_modernbert": CLIPPED + MODERNBERT + "precision=bf16",
    # One layer for all, with another numbered module inside
    "albert": THREE + TINY + ALBERT,
    "bf16_albert": ADAMW + ALBERT + "precision=bf16",
    "linear_head": THREE + TINY + "model.head=linear",
    "linear_head_decoder_padded": ADAMW + DECODER + "model.head=linear",
    "unused_weights": "model.architecture=big_bird",
    "gradient_checkpointing": THREE + TINY + "gradient_checkpointing=true",
    "masked_language_modelling": THREE + MASKED,
    "masked_language_modelling_padded": MASKED,
}
if find_spec("peft"):
    CASES |= {
        "lora": THREE + TINY + "model.lora_rank=4",
        "lora_decoder": THREE + DECODER + "model.lora_rank=4",
        "lora_adamw": ADAMW + "model.lora_rank=4",
        "lora_padded_adamw": ADAMW + "gradient_checkpointing=true model.lora_rank=2",
    }
# The weights of other trainings are fp32
DTYPES = {"float64": torch.float64}
# So large that the first gradients are infinite, for some steps
OVERFLOW = {"scale": 2.0**40, "backoff_factor": 2.0**-10}


def settings_of(case: str, data: str) -> Config:
    task = next((task for task in FILES if f"data.task={task}" in CASES[case]), "single_label")
    words = BASE + FILES[task] + "data.cache_dir={}/cache " + CASES[case]
    words = words.replace("{}", data)
    arguments = []
    for word in words.split():
        if "." not in word.partition("=")[0]:
            word = f"train.{word}"
        arguments.append(f"--{word}")
    return load_config(arguments)


def be_rank(mode: str, data: str, out: str, stage: str, *trainings: str) -> int:
    """Do trainings in this process, which is one rank; a class of broken_modes is a mode too. What else is in
    `run_trainings` is here, too: it joins the processes once for each training."""
    if hasattr(broken_modes, mode):
        modes.MODES[mode] = f"{broken_modes.__name__}:{mode}"
    mode_class = load_mode(mode)
    base = settings_of("sgd", data)
    base = replace(base, deepspeed=replace(base.deepspeed, stage=int(stage)))
    with mode_class(base) as opened:
        for training in trainings:
            case, precision = training.split(":")
            config = settings_of(case, data)
            if precision.endswith(CONTROL):
                steps = 2 * config.train.accumulation_steps
                config = replace(config, train=replace(config.train, accumulation_steps=steps))
            opened.setup = partial(set_up, opened, case == "fp16_overflow")
            torch.set_default_dtype(DTYPES.get(precision, torch.float32))
            opened.config = replace(config, deepspeed=base.deepspeed)
            opened.accepts_packed = mode_class.accepts_packed and "padded" not in case
            Path(out, case).mkdir(exist_ok=True)
            train_and_write(opened, result_file(Path(out, case), precision))
    return 0


def be_rank_of_part(mode: str, data: str, out: str, case: str, last_step: str) -> int:
    """Train a case in float64 from the step that the folder `out` has a state of, or from the first one, to
    another step; rank 0 writes the state there."""
    torch.set_default_dtype(torch.float64)
    config = settings_of(case, data)
    path = Path(out, "state.safetensors")
    with load_mode(mode)(config) as opened:
        components = build(config, opened)
        components.model.to(torch.float64)
        opened.setup(components.model, components.config)
        weights = {}
        optimizer = {}
        progress = RunProgress()
        if path.exists():
            state = load_file(path)
            progress.step = progress.updates = int(state.pop("step"))
            if opened.group.rank == 0:
                optimizer = {name: value for name, value in state.items() if name.startswith("state.")}
                weights = {name: value for name, value in state.items() if name not in optimizer}
            opened.load_optimizer_state(optimizer)
            opened.load_weights(weights)

        def after_step(progress: RunProgress, step: StepResult) -> None:
            progress.stop = progress.step == int(last_step)

        loader = components.loaders["train"]
        train_steps(opened, loader, components.plan, components.task.loss, progress, after_step)
        state = opened.weights() | opened.optimizer_state() | {"step": torch.tensor(progress.step)}
        if opened.group.rank == 0:
            save_file({name: value.contiguous() for name, value in state.items()}, path)
    return 0


def set_up(mode: Mode, overflows: bool, model: nn.Module, config: Config) -> None:
    """Set a mode up, with an overflow where it is asked for."""
    type(mode).setup(mode, model, config)
    if overflows:
        mode.scaler.load_state_dict(mode.scaler.state_dict() | OVERFLOW)
