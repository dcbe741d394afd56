"""What FSDP gathers: python -m pytest tests/modes/test_fsdp.py

That its results are those of the other modes: tests/modes/test_contract.py, and python -m app verify
--precision bf16.
"""

import pytest
import torch

from app.batching.loader import collate
from app.config.schema import Config, TrainConfig
from app.modes.fsdp import FSDP
from app.runtime.devices import at_least_float32
from tests.tiny import tiny_model, token_rows


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float32)]
)
def test_parameters_are_gathered_in_bf16_under_bf16_only(monkeypatch, precision, dtype):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    model, gathered = tiny_model().train(), set()
    for layer in model.model.bert.encoder.layer:
        layer.output.dense.register_forward_hook(lambda module, *_: gathered.add(module.weight.dtype))
    with FSDP(Config(train=TrainConfig(precision=precision, device="cpu"))) as mode:
        mode.setup(model, lambda module: torch.optim.SGD(module.parameters(), lr=0.1))
        inputs = collate(token_rows([5, 9]), None, model.layout(True))
        with mode.micro_batch(is_last=True):
            logits = at_least_float32(mode.forward(inputs))
            mode.backward(logits.sum())
        assert gathered == {dtype}
        assert logits.dtype == torch.float32
        kept = [*mode.weights().values(), *mode.gradients().values()]
        assert {value.dtype for value in kept} == {torch.float32}
