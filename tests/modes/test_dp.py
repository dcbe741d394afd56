"""The copies of DataParallel: python -m pytest tests/modes/test_dp.py"""

from threading import Thread

import pytest
import torch

from app.config.schema import Config, TrainConfig
from app.modes.dp import DataParallel
from app.runtime.devices import at_least_float32
from app.training.step import build_optimizer
from tests.tiny import tiny_model

INPUTS = {"input_ids": torch.arange(5, 17).view(3, 4), "attention_mask": torch.ones(3, 4, dtype=torch.int64)}


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_a_copy_in_its_own_thread_computes_in_the_configured_precision(precision, dtype):
    """torch's parallel_apply calls each copy so; autocast and its dtype belong to a thread."""
    config = Config(train=TrainConfig(device="cpu", threads=1, learning_rate=1e-3, precision=precision))
    with DataParallel(config) as mode:
        model = tiny_model()
        mode.setup(model, lambda module: build_optimizer(module, config.train, 2))
        dtypes = []
        model.register_forward_hook(lambda *_: dtypes.append(torch.get_autocast_dtype("cpu")))

        def call() -> None:
            # As the thread of a copy finds it
            with torch.autocast("cpu", torch.float16, enabled=precision != "fp32"):
                dtypes.append(mode.module.module(**INPUTS).dtype)

        thread = Thread(target=call)
        thread.start()
        thread.join()
        assert dtypes[-1] == dtype
        if precision != "fp32":
            assert dtypes == [dtype, dtype]
        assert at_least_float32(mode.forward(INPUTS)).dtype == torch.float32
        assert mode.unwrapped_module() is model


def test_copies_have_the_weights_of_their_own_device():
    """A copy's parts are set after it is made from the attributes of the original, so nothing may be bound to
    the original."""
    config = Config(train=TrainConfig(device="cpu", threads=1, learning_rate=1e-3, precision="bf16"))
    with DataParallel(config) as mode:
        model = tiny_model()
        mode.setup(model, lambda module: build_optimizer(module, config.train, 2))
        copy = mode.module.module._replicate_for_data_parallel()
        copy._modules["model"] = torch.nn.Identity()
        copy._modules["model"].forward = lambda **inputs: inputs["value"]
        assert copy(value=torch.ones(1)) == 1
