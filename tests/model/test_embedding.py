"""Embeddings whose gradients are made in kept memory: the gradients of nn.Embedding, and nobody's memory is taken."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from app.model.embedding import Embedding, keep_gradient_memory
from app.model.modules import replace_modules
from tests.tiny import tiny_model


def gradient(embedding: nn.Embedding, ids: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    (embedding(ids) * factors).sum().backward()
    return embedding.weight.grad


@pytest.fixture(params=[None, 0, 2])
def pair(request) -> tuple[nn.Embedding, Embedding]:
    torch.manual_seed(0)
    plain = nn.Embedding(50, 8, padding_idx=request.param)
    return plain, Embedding(deepcopy(plain))


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 20, (3, 7), generator=generator), torch.randn(3, 7, 8, generator=generator)


def test_gradients_are_those_of_torch(pair):
    """Bit for bit, in every step, and added up over micro-batches."""
    for step in range(3):
        for micro_batch in range(3):
            found = [gradient(embedding, *batch(10 * step + micro_batch)) for embedding in pair]
            assert torch.equal(*found)
        for embedding in pair:
            embedding.weight.grad = None


def test_memory_is_used_again_only_where_nobody_has_it(pair):
    _, embedding = pair
    first = gradient(embedding, *batch(0))
    place, before = first.data_ptr(), first.clone()
    embedding.weight.grad = None
    second = gradient(embedding, *batch(1))
    assert second.data_ptr() != place  # `first` is still held
    assert torch.equal(first, before)
    del first
    embedding.weight.grad = None
    held, before = second[:1], second[:1].clone()  # a part is enough to hold it
    del second
    assert gradient(embedding, *batch(2)).data_ptr() == place
    assert len(embedding.kept.blocks) == 2
    assert torch.equal(held, before)


def test_a_model_keeps_its_weights_and_their_names():
    plain = deepcopy(tiny_model().model)
    replace_modules(
        plain,
        Embedding,
        lambda child: nn.Embedding(
            child.num_embeddings, child.embedding_dim, child.padding_idx, _weight=child.weight.detach()
        ),
    )
    names, weights = list(plain.state_dict()), plain.state_dict()
    keep_gradient_memory(plain)
    assert list(plain.state_dict()) == names
    assert all(torch.equal(plain.state_dict()[name], weights[name]) for name in names)
    assert type(plain.get_input_embeddings()) is Embedding
    assert sum(type(module) is nn.Embedding for module in plain.modules()) == 0


def test_an_embedding_with_options_stays_as_it_is():
    model = nn.Sequential(nn.Embedding(5, 2, max_norm=1.0), nn.Embedding(5, 2, sparse=True), nn.Embedding(5, 2))
    keep_gradient_memory(model)
    assert [type(module) for module in model] == [nn.Embedding, nn.Embedding, Embedding]
