"""What a mode makes of the model and of the settings.

That its results are those of the other modes: tests/modes/test_contract.py, and python -m app verify
--precision bf16.
"""

import json
from threading import Thread
from types import SimpleNamespace

import pytest
import torch

from app.batching.collate import collate
from app.config.schema import Config, DeepSpeedConfig, TrainConfig
from app.errors import InputError
from app.modes.deepspeed_mode import deepspeed_config
from app.modes.mode import FSDP, DataParallel
from app.runtime.devices import at_least_float32
from tests.tiny import tiny_model, token_rows

INPUTS = {"input_ids": torch.arange(5, 17).view(3, 4), "attention_mask": torch.ones(3, 4, dtype=torch.int64)}


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_a_copy_in_its_own_thread_computes_in_the_configured_precision(precision, dtype):
    """torch's parallel_apply calls each copy so; autocast and its dtype belong to a thread."""
    config = Config(train=TrainConfig(device="cpu", threads=1, precision=precision, learning_rate=0.1))
    with DataParallel(config) as mode:
        model = tiny_model()
        dtypes = []
        mode.setup(model, config)
        query = model.model.bert.encoder.layer[0].attention.self.query
        query.register_forward_hook(lambda module, inputs, output: dtypes.append(output.dtype))
        model.model.register_forward_hook(lambda *_: dtypes.append(torch.get_autocast_dtype("cpu")))

        def call() -> None:
            # As the thread of a copy finds it
            with torch.autocast("cpu", torch.float16, enabled=precision != "fp32"):
                dtypes.append(mode.module(**INPUTS).dtype)

        thread = Thread(target=call)
        thread.start()
        thread.join()
        # The head computes in fp32
        assert dtypes[0] == dtype
        assert dtypes[-1] == torch.float32
        if precision != "fp32":
            assert dtypes[1] == dtype
        assert at_least_float32(mode.forward(INPUTS)).dtype == torch.float32
        assert mode.unwrapped_module() is model


def test_copies_have_the_weights_of_their_own_device():
    """The parts of a copy are set after it is made, so nothing may be bound to the original."""
    copy = tiny_model()._replicate_for_data_parallel()
    copy._modules["model"] = lambda **inputs: SimpleNamespace(logits=inputs["input_ids"])
    assert copy(input_ids=torch.ones(1)) == 1


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_parameters_are_gathered_in_bf16_under_bf16_only(monkeypatch, precision):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    model = tiny_model().train()
    gathered = set()
    for layer in model.model.bert.encoder.layer:
        layer.output.dense.register_forward_hook(lambda module, *_: gathered.add(module.weight.dtype))
    config = Config(train=TrainConfig(precision=precision, device="cpu", learning_rate=0.1))
    with FSDP(config) as mode:
        mode.setup(model, config)
        inputs = collate(token_rows([5, 9]), None, model.layout(True))
        with mode.micro_batch(is_last=True):
            logits = at_least_float32(mode.forward(inputs))
            mode.backward(logits.sum())
        assert gathered == {torch.bfloat16 if precision == "bf16" else torch.float32}
        assert logits.dtype == torch.float32
        for tensors in (mode.weights(), mode.gradients()):
            assert {value.dtype for value in tensors.values()} == {torch.float32}


def merged(tmp_path, users: object) -> dict:
    """Return the configuration of DeepSpeed with a user's JSON file merged in."""
    path = tmp_path / "ds.json"
    path.write_text(users if isinstance(users, str) else json.dumps(users))
    train = TrainConfig(batch_size=32, accumulation_steps=2, max_grad_norm=0.5, learning_rate=1e-3)
    return deepspeed_config(Config(train=train, deepspeed=DeepSpeedConfig(config=str(path))))


def test_the_configuration_of_deepspeed_follows_from_ours(tmp_path):
    users = {"zero_optimization": {"reduce_bucket_size": 1000}, "wall_clock_breakdown": True}
    settings = merged(tmp_path, users)
    assert settings["zero_optimization"] == {"stage": 2, "reduce_bucket_size": 1000}
    assert settings["wall_clock_breakdown"] is True
    assert settings["gradient_clipping"] == 0.5
    assert settings["gradient_accumulation_steps"] == 2
    assert "train_batch_size" not in settings, "it need not come out even over the processes"
    # Left out, DeepSpeed would clip at 1.0.
    assert deepspeed_config(Config(train=TrainConfig(max_grad_norm=0)))["gradient_clipping"] == 0


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ({"train_batch_size": 64, "fp16": {}}, "train_batch_size, fp16 must follow from the settings"),
        ({"zero_optimization": {"stage": 3}}, "stage must follow from the settings"),
        ({"zero_optimization": {"compute_grad_norm": False}}, "compute_grad_norm must follow"),
        ({"zero_optimization": 3}, "an object is needed, and one as zero_optimization, found {'zero"),
        ([1], r"an object is needed, .* found \[1\]"),
        ("{", r"not valid JSON"),
    ],
)
def test_contradictions_are_refused(tmp_path, users, message):
    with pytest.raises(InputError, match=message):
        merged(tmp_path, users)
