"""Embeddings whose gradients reuse memory: the gradients of nn.Embedding, and no memory that is still in use
is taken."""

import gc
import pickle
from copy import deepcopy

import pytest
import torch
from torch import nn

from app.model.embedding import Block, Embedding, reuse_gradient_memory
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
            assert torch.equal(*(gradient(embedding, *batch(10 * step + micro_batch)) for embedding in pair))
        for embedding in pair:
            embedding.weight.grad = None


def test_memory_is_reused_only_where_no_tensor_is_left_on_it(pair):
    _, embedding = pair
    first = gradient(embedding, *batch(0))
    place, before = first.data_ptr(), first.clone()
    embedding.weight.grad = None
    second = gradient(embedding, *batch(1))
    # `first` is still held
    assert second.data_ptr() != place
    assert torch.equal(first, before)
    del first
    embedding.weight.grad = None
    # A view is enough to hold it
    held, before = second[:1], second[:1].clone()
    del second
    assert gradient(embedding, *batch(2)).data_ptr() == place
    assert len(embedding.memory.blocks) == 2
    assert torch.equal(held, before)


# What can be all that is left of a tensor; that in an autograd graph has no object in Python.
HOLDERS = {
    "tensor": lambda tensor: tensor,
    "view": lambda tensor: tensor[3:4],
    "view of another dtype": lambda tensor: tensor.view(torch.int32),
    "detached": lambda tensor: tensor.detach(),
    "storage": lambda tensor: tensor.untyped_storage(),
    "array": lambda tensor: tensor.numpy(),
    "autograd graph": lambda tensor: torch.ones(8, requires_grad=True) * tensor,
    "dlpack": torch.utils.dlpack.to_dlpack,
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_torch_keeps_the_array_of_a_tensor_alive(holder):
    """`Block.tensor` relies on this.

    If it fails after an upgrade of torch, let `Embedding.forward` call `super` on every device.
    """
    block = Block(torch.zeros(50, 8))
    held = HOLDERS[holder](block.tensor())
    gc.collect()
    assert not block.is_free()
    del held
    gc.collect()
    assert block.is_free()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_memory_of_every_dtype_is_reused(dtype):
    embedding = Embedding(nn.Embedding(50, 3, dtype=dtype))
    places = set()
    for seed in range(3):
        ids, _ = batch(seed)
        places.add(gradient(embedding, ids, torch.ones(3, dtype=dtype)).data_ptr())
        expected = torch.zeros(50).index_add(0, ids.flatten(), torch.ones(ids.numel()))
        assert torch.equal(embedding.weight.grad, expected[:, None].expand(50, 3).to(dtype))
        embedding.weight.grad = None
    assert len(places) == len(embedding.memory.blocks) == 1


@pytest.mark.parametrize("copy", [deepcopy, lambda embedding: pickle.loads(pickle.dumps(embedding))])
def test_a_copy_does_not_share_memory(pair, copy):
    _, embedding = pair
    before = gradient(embedding, *batch(0))
    other = copy(embedding)
    other.weight.grad = None
    assert torch.equal(gradient(other, *batch(0)), before)
    assert other.weight.grad.data_ptr() != before.data_ptr()
    assert len(embedding.memory.blocks) == len(other.memory.blocks) == 1


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
    reuse_gradient_memory(plain)
    assert list(plain.state_dict()) == names
    assert all(torch.equal(plain.state_dict()[name], weights[name]) for name in names)
    assert type(plain.get_input_embeddings()) is Embedding
    assert sum(type(module) is nn.Embedding for module in plain.modules()) == 0


def test_an_embedding_with_options_stays_as_it_is():
    model = nn.Sequential(
        nn.Embedding(5, 2, max_norm=1.0), nn.Embedding(5, 2, sparse=True), nn.Embedding(5, 2)
    )
    reuse_gradient_memory(model)
    assert [type(module) for module in model] == [nn.Embedding, nn.Embedding, Embedding]
