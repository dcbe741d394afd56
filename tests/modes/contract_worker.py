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

from tests.modes.contract_cases import BASE, CASES, OVERFLOW_SCALE


def work(target: str, data: str, out: str, names: list[str], stage: int) -> int:
    """Run the cases in this process, which is one rank."""
    import torch

    from app.config.schema import Config, DeepSpeedConfig, TrainConfig
    from app.runtime.machine import set_up_machine

    base = TrainConfig(**BASE)
    with resolve_name(target)(Config(train=base, deepspeed=DeepSpeedConfig(stage=stage))) as mode:
        set_up_machine(base, mode.device, mode.group.local_world_size)
        for case_name in names:
            mode.config = replace(mode.config, train=replace(base, **CASES[case_name].train))
            result = run_case(mode, case_name, data)
            if mode.group.rank == 0:
                torch.save(result, Path(out) / f"{case_name}.pt")
    return 0


def run_case(mode, case_name: str, data: str) -> dict:
    """Train one case; returns losses, norms, learning rates, skips, gradients of the last step, weights,
    logits."""
    import numpy as np
    import torch

    from app.batching.plan import BatchPlan
    from app.checkpoints.training_state import RunProgress
    from app.config.schema import Config, DataConfig, ModelConfig
    from app.data.dataset import open_dataset
    from app.data.long_texts import long_texts
    from app.data.tokenizer import load_tokenizer
    from app.data.tokens import open_store
    from app.model.trained_weights import add_lora, freeze
    from app.tasks import prepare_task
    from app.training.evaluate import evaluate
    from app.training.optimizer import build_optimizer
    from app.training.step import train

    case, config = CASES[case_name], mode.config.train
    cache = str(Path(data).parent / "cache")
    data_config = DataConfig(
        task=case.task, train=data, limit=case.limit, dev_size=0, test_size=0, cache_dir=cache, max_length=32
    )
    if case.task in ("single_label", "ordinal"):
        data_config = replace(data_config, labels=["a", "b", "c"])
    elif case.task == "multi_label":
        sets = str(Path(data).with_name("sets.tsv"))
        data_config = replace(data_config, train=sets, labels=["a", "b", "c"], label_separator="|")
    elif case.task == "regression":
        data_config = replace(data_config, train=str(Path(data).with_name("scores.tsv")))
    else:
        # The file has labels, which are not read
        data_config = replace(data_config, format="tsv", text_column=0, header=False)
    data_config = replace(data_config, **case.data)
    dataset = open_dataset(data_config)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model_config = ModelConfig(architecture=case.architecture, config=shape | case.config, dropout=0.0)
    # torch's norm of a large gradient without zeros has an error of 1e-5 in fp32
    if case.task == "masked_language_modelling":
        model_config = replace(model_config, vocab_file=str(Path(data).with_name("vocab.txt")))
    tokenizer = load_tokenizer(model_config, dataset, data_config.max_length, cache)
    split = dataset.splits["train"]
    store = open_store(split.table, tokenizer, data_config.max_length, cache, long_texts(data_config))
    task = prepare_task(Config(data_config, model_config, config), dataset, tokenizer, mode.device)
    torch.manual_seed(0)
    model = task.build_model({"train": store})
    freeze(model, case.freeze, 2)
    add_lora(model, case.lora_rank)
    if config.gradient_checkpointing:
        model.checkpoint_layers()
    if config.r_drop:
        model.model.classifier.register_forward_pre_hook(two_masks)
    packed = case.layout != "padded" and model.can_pack and mode.accepts_packed
    layout = model.layout(packed, varlen=packed and case.layout == "varlen")
    loader = task.loader(split, store, layout)
    plan = BatchPlan(len(split), config.batch_size, 1)
    mode.setup(model, lambda module: build_optimizer(module, config, 2))
    if case_name == "fp16_overflow" and mode.scaler:
        mode.scaler.load_state_dict(
            mode.scaler.state_dict() | {"scale": OVERFLOW_SCALE, "backoff_factor": 2.0**-10}
        )
    result = {"losses": [], "norms": [], "learning_rates": [], "skipped": []}
    state = RunProgress()

    def before_update() -> None:
        # Gathering them all takes longer than the step
        if state.step == config.max_steps - 1:
            result["gradients"] = mode.gradients()

    def after_step(state: RunProgress, step) -> None:
        result["losses"].append(float(mode.group.reduce_sum(step.loss_sum)) / step.divisor)
        result["norms"].append(float(step.grad_norm))
        result["learning_rates"].append(step.learning_rate)
        result["skipped"].append(step.skipped)
        result["updates"] = state.updates

    train(mode, loader, plan, task.loss, config, state, after_step, before_update)
    # Splits of every small size, also of fewer rows than processes, must come back whole.
    sizes = {}
    for size in (1, 2, 3, 5, len(split)):
        small = task.loader(replace(split, rows=split.rows[:size], labels=split.labels[:size]), store, layout)
        sizes[size] = evaluate(mode, small, 4, row_results=task.row_results).shape[0]
    result |= {
        "weights": mode.weights(),
        "logits": torch.from_numpy(evaluate(mode, loader, 4, row_results=task.row_results).copy()),
        "sizes": sizes,
    }
    restored = check_optimizer_round_trip(mode)
    result |= {
        "restored": restored,
        "labels": torch.from_numpy(np.array(split.labels)),
        "world_size": mode.group.world_size,
    }
    return result


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
    again, optimizer_again = mode.weights(), mode.optimizer_state()
    assert set(again) == set(weights), "weights changed their names"
    assert set(optimizer_again) == set(optimizer), "the optimizer state changed its names"
    pairs = [(again[key], weights[key]) for key in weights] + [
        (optimizer_again[key], optimizer[key]) for key in optimizer
    ]
    return max((float((a - b).abs().max()) for a, b in pairs), default=0.0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("target", "data", "out"):
        parser.add_argument(name)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--nprocs", type=int)
    parser.add_argument("--stage", type=int, default=2, help="of ZeRO, for DeepSpeed")
    options = parser.parse_args()
    arguments = (options.target, options.data, options.out, options.names, options.stage)
    sys.exit(resolve_name(options.target).launcher.launch(work, arguments, options.nprocs))
