"""One rank of the contract suite: trains every case in one mode and writes what came out, on rank 0.

Started by tests/modes/test_contract.py through the mode's own launcher:

    torchrun --nproc_per_node=2 tests/modes/contract_worker.py MODULE:CLASS DATA OUT CASE ...
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.modes.contract_cases import BASE, CASES, FILES, MODEL, OVERFLOW_SCALE


def work(target: str, data: str, out: str, names: list[str], stage: int) -> int:
    """Run the cases in this process, which is one rank."""
    import torch

    from app.config.schema import Config, DeepSpeedConfig, TrainConfig
    from app.runtime.devices import set_up_machine

    base = Config(train=TrainConfig(**BASE), deepspeed=DeepSpeedConfig(stage=stage))
    with resolve_name(target)(base) as mode:
        set_up_machine(base.train, mode.device, mode.group.local_world_size)
        for case_name in names:
            result = run_case(mode, base, case_name, Path(data).parent)
            if mode.group.rank == 0:
                torch.save(result, Path(out) / f"{case_name}.pt")
    return 0


def run_case(mode, base, case_name: str, folder: Path) -> dict:
    """Train one case; returns losses, norms, learning rates, skips, gradients of the last step, weights,
    logits."""
    import numpy as np
    import torch

    from app.checkpoints.training_state import RunProgress
    from app.config.schema import DataConfig, ModelConfig
    from app.training.build import build, set_up
    from app.training.evaluate import evaluate
    from app.training.step import train_steps

    case = CASES[case_name]
    name, settings = FILES[case.task]
    data = {
        "task": case.task,
        "train": str(folder / name),
        "cache_dir": str(folder / "cache"),
        "limit": case.limit,
    }
    data |= {"dev_size": 0, "test_size": 0, "max_length": 32} | settings | case.data
    # torch's norm of a large gradient without zeros has an error of 1e-5 in fp32
    vocabulary = str(folder / "vocab.txt") if case.task == "masked_language_modelling" else None
    model = ModelConfig(
        **{"vocab_file": vocabulary, "dropout": 0.0} | case.model | {"config": MODEL | case.config}
    )
    config = replace(base, data=DataConfig(**data), model=model, train=replace(base.train, **case.train))
    parts = build(config, mode)
    model, task, split = parts.model, parts.task, parts.dataset.splits["train"]
    if config.train.r_drop:
        model.model.classifier.register_forward_pre_hook(two_masks)
    packed = case.layout != "padded" and model.can_pack and mode.accepts_packed
    layout = model.layout(packed, varlen=packed and case.layout == "varlen")
    loader = task.loader(split, parts.stores["train"], layout)
    set_up(mode, parts)
    if case_name == "fp16_overflow" and mode.scaler:
        scale = {"scale": OVERFLOW_SCALE, "backoff_factor": 2.0**-10}
        mode.scaler.load_state_dict(mode.scaler.state_dict() | scale)
    result = {"losses": [], "norms": [], "learning_rates": [], "skipped": []}
    state = RunProgress()

    def before_update() -> None:
        # Gathering them all takes longer than the step
        if state.step == config.train.max_steps - 1:
            result["gradients"] = mode.gradients()

    def after_step(state: RunProgress, step) -> None:
        result["losses"].append(float(mode.group.reduce_sum(step.loss_sum)) / step.divisor)
        result["norms"].append(float(step.grad_norm))
        result["learning_rates"].append(step.learning_rate)
        result["skipped"].append(step.skipped)
        result["updates"] = state.updates

    train_steps(mode, loader, parts.plan, task.loss, parts.config.train, state, after_step, before_update)
    # Splits of every small size, also of fewer rows than processes, must come back whole.
    sizes = {}
    for size in (1, 2, 3, 5, len(split)):
        first = replace(split, rows=split.rows[:size], labels=split.labels[:size])
        small = task.loader(first, parts.stores["train"], layout)
        sizes[size] = evaluate(mode, small, 4, row_results=task.row_results).shape[0]
    logits = evaluate(mode, loader, 4, row_results=task.row_results).copy()
    result |= {"weights": mode.weights(), "logits": torch.from_numpy(logits), "sizes": sizes}
    result |= {"restored": check_optimizer_round_trip(mode), "world_size": mode.group.world_size}
    return result | {"labels": torch.from_numpy(np.array(split.labels))}


def two_masks(module, inputs):
    """Drop every second feature, other ones in the second half of the rows: dropout that is the same in all
    modes."""
    import torch

    (features,) = inputs
    if not module.training:
        return None
    kept = torch.arange(features.shape[-1]) % 2 * 2.0
    half = len(features) // 2
    return torch.cat([features[:half] * kept, features[half:] * (2 - kept)])


def check_optimizer_round_trip(mode) -> float:
    """Load the mode's own weights and optimizer state back; returns the largest difference afterwards, on
    rank 0."""
    weights, optimizer = mode.weights(), mode.optimizer_state()
    mode.load_weights(weights)
    mode.load_optimizer_state(optimizer)
    pairs = ((mode.weights(), weights), (mode.optimizer_state(), optimizer))
    assert all(set(again) == set(before) for again, before in pairs), "names have changed"
    differences = (float((again[key] - before[key]).abs().max()) for again, before in pairs for key in before)
    return max(differences, default=0.0)


if __name__ == "__main__":
    from app.modes.group import launch

    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("target", "data", "out"):
        parser.add_argument(name)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--nprocs", type=int)
    parser.add_argument("--stage", type=int, default=2, help="of ZeRO, for DeepSpeed")
    options = parser.parse_args()
    arguments = (options.target, options.data, options.out, options.names, options.stage)
    sys.exit(launch(resolve_name(options.target).launcher, work, arguments, options.nprocs))
