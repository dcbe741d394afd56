"""Models with a trained weight that no pass uses: it has no gradient, and so no optimizer state."""

import pytest
import torch

from app.batching.loader import collate
from app.config.schema import Config, TrainConfig
from app.errors import TrainingError
from app.modes.mode import NO_GRADIENT, Single
from tests.tiny import tiny_model, token_rows

CONFIG = Config(train=TrainConfig(device="cpu", threads=1, precision="fp32", learning_rate=0.01))
# Those of masked words have a pooler that only other tasks read
TYPES = [
    ("big_bird", False, {}),
    ("luke", False, {"entity_vocab_size": 10, "entity_emb_size": 8}),
    ("longformer", True, {"attention_window": 8}),
    ("squeezebert", True, {"embedding_size": 32}),
]


def model_of(architecture: str, masked: bool, sizes: dict):
    return tiny_model(architecture, masked=masked, **sizes).train()


def make_step(mode: Single) -> None:
    inputs = collate(token_rows([5, 9, 3]), None, mode.module.layout(False))
    mode.backward(mode.forward(inputs).square().mean())
    mode.step(0.0)
    mode.optimizer.zero_grad()


@pytest.mark.parametrize(("architecture", "masked", "sizes"), TYPES)
def test_a_run_with_an_unused_weight_resumes(architecture, masked, sizes):
    """The state has the same content again, and the next step has the same bits."""
    with Single(CONFIG) as whole, Single(CONFIG) as resumed:
        whole.setup(model_of(architecture, masked, sizes), CONFIG)
        make_step(whole)
        state = whole.optimizer_state()
        weights = whole.weights()
        make_step(whole)

        resumed.setup(model_of(architecture, masked, sizes), CONFIG)
        # The optimizer goes on with the tensors that it gets
        resumed.load_optimizer_state({name: value.clone() for name, value in state.items()})
        resumed.load_weights(weights)
        again = resumed.optimizer_state()
        make_step(resumed)

        unused = [name for name in state if name.endswith(NO_GRADIENT)]
        assert unused
        assert again.keys() == state.keys()
        assert all(torch.equal(again[name], state[name]) for name in state)
        last = resumed.weights()
        assert all(torch.equal(value, last[name]) for name, value in whole.weights().items())


def test_a_state_without_a_trained_weight_is_refused():
    """A weight is left out only where the state says that it never had a gradient."""
    with Single(CONFIG) as mode:
        mode.setup(tiny_model().train(), CONFIG)
        make_step(mode)
        state = mode.optimizer_state()
        lost = {name: value for name, value in state.items() if ".classifier.bias." not in name}
        with pytest.raises(TrainingError, match="missing: classifier.bias; of no parameter: none"):
            mode.load_optimizer_state(lost)
