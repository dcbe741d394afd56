"""The modes that cut a model never have the whole of it on a device: bytes are counted, on the CPU. It is
host and device at once, so each test says which of its bytes are those of the device."""

import json
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from app.batching.loader import collate
from app.config.schema import Config, DeepSpeedConfig, TrainConfig
from app.modes import load_mode
from app.modes.mode import FSDP, Single
from app.runtime.devices import at_least_float32
from tests.ranks import fork, need
from tests.tiny import tiny_model, token_rows

RANKS = 4
SIZES = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 16}
# Enough to tell a shard from the whole; DeepSpeed takes long for each
LAYERS_OF_DEEPSPEED = 12
# DeepSpeed keeps small parameters whole, and up to a thousand million others for the backward pass
ZERO = {"stage3_param_persistence_threshold": 0, "stage3_max_live_parameters": 400_000}
ZERO |= {"stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0}


class LiveBytes(TorchDispatchMode):
    """The most bytes of tensors that operations took or returned and that were not freed yet."""

    def __init__(self) -> None:
        super().__init__()
        # By address: a reference that does not keep the storage, and its bytes when an operation last had it
        self.storages = {}
        self.total = 0
        self.peak = 0

    def add(self, tensor: torch.Tensor) -> None:
        if isinstance(tensor, DTensor):
            tensor = tensor.to_local()
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        _, size_before = self.storages.get(storage._cdata, (None, 0))
        self.storages[storage._cdata] = (weakref.ref(storage), size)
        self.total += size - size_before
        if self.total > self.peak:
            self.measure()

    def measure(self) -> None:
        """Count again: some storages are gone by now, and FSDP frees memory by making storages smaller."""
        alive = {}
        for address, (reference, _) in self.storages.items():
            storage = reference()
            if storage is not None:
                alive[address] = (reference, storage.nbytes())
        self.storages = alive
        self.total = sum(size for _, size in alive.values())
        self.peak = max(self.peak, self.total)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        for value in tree_leaves((args, results)):
            if isinstance(value, torch.Tensor) and not value.is_meta:
                self.add(value)
        return results


class WholeParameters(TorchDispatchMode):
    """The most bytes of parameters that the modules of a model had whole, during any operation."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        # Of each module; FSDP puts other parameters into them
        self.parameters = [module._parameters for module in model.modules() if module._parameters]
        self.peak = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        # This is done for each of very many operations
        count = 0
        for parameters in self.parameters:
            for parameter in parameters.values():
                if parameter is not None and not isinstance(parameter, DTensor):
                    count += parameter.numel()
        self.peak = max(self.peak, count * 4)
        return results


class Moved(TorchFunctionMode):
    """The most bytes of tensors that were sent to a device, which on the CPU copies nothing, and that were
    not freed yet."""

    def __init__(self) -> None:
        super().__init__()
        self.live = LiveBytes()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function is torch.Tensor.to:
            self.live.add(result)
        return result


class OnHost(torch.Tensor):
    """A tensor in the memory of a host, which is not the device: it must be sent to the CPU first."""

    sent = LiveBytes()

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.size(), dtype=held.dtype, device="cuda:0")

    def __init__(self, held) -> None:
        self.held = held

    def __tensor_flatten__(self):
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return OnHost(inner["held"])

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._to_copy.default:
            result = args[0].held.clone()
            cls.sent.add(result)
            return result
        if function is torch.ops.aten.detach.default:
            return OnHost(args[0].held)
        raise AssertionError(f"{function} on the host")


def num_bytes(parameters) -> int:
    return sum(parameter.numel() * 4 for parameter in parameters)


def be_rank(name: str, precision: str, zero: str, out: str) -> int:
    """Set a model up, make a step, save and load; each rank writes what its device had."""
    train = TrainConfig(device="cpu", threads=1, precision=precision, optimizer="sgd", learning_rate=0.1)
    config = Config(train=train, deepspeed=DeepSpeedConfig(stage=3, config=zero or None))
    peaks = {}
    with load_mode(name)(config) as mode:
        sizes = SIZES
        if name == "deepspeed":
            sizes = SIZES | {"num_hidden_layers": LAYERS_OF_DEEPSPEED}
        model = tiny_model(**sizes).train()
        model.checkpoint_layers()
        layer = model.model.bert.encoder.layer[0]
        peaks["whole"] = num_bytes(model.parameters())
        peaks["layer"] = num_bytes(layer.parameters())
        with Moved() as moved:
            mode.setup(model, config)
        peaks["moved"] = moved.live.peak
        inputs = collate(token_rows([3, 4]), None, model.layout(True))

        with WholeParameters(model) as parameters, LiveBytes() as live:
            for is_last in (False, True):
                with mode.micro_batch(is_last):
                    mode.backward(at_least_float32(mode.forward(inputs)).sum())
            mode.step(0.0)
        peaks["gathered"] = parameters.peak
        peaks["step"] = live.peak
        mode.optimizer.zero_grad()
        with LiveBytes() as live:
            weights = mode.weights()
        peaks["saving"] = live.peak
        with LiveBytes() as live:
            mode.load_weights(weights)
        peaks["loading"] = live.peak
        Path(out, f"{mode.group.rank}.json").write_text(json.dumps(peaks))
    return 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision"), [("fsdp", "fp32"), ("fsdp", "bf16"), ("deepspeed", "fp32"), ("deepspeed", "bf16")]
)
def test_no_rank_ever_has_the_whole_model_on_its_device(name, precision, tmp_path):
    """Of the setup, the bytes that were sent to the device; of saving and loading those of the ranks that
    write no file: what rank 0 keeps is in the memory of the host."""
    need(name)
    zero = ""
    if name == "deepspeed":
        zero = str(tmp_path / "zero.json")
        Path(zero).write_text(json.dumps({"zero_optimization": ZERO}))
    fork(be_rank, (name, precision, zero, str(tmp_path)), RANKS, tmp_path / "log")
    for rank in range(1, RANKS):
        peaks = json.loads((tmp_path / f"{rank}.json").read_text())
        whole = peaks["whole"]
        layer = peaks["layer"]
        # Embeddings and head are less than a layer; the next layer is gathered beside the one that computes
        assert peaks["moved"] <= whole / RANKS + layer, peaks
        assert peaks["gathered"] <= 4 * layer, peaks
        assert peaks["saving"] <= whole / RANKS * 2 + 2 * layer, peaks
        assert peaks["loading"] <= whole / RANKS * 2 + 4 * layer, peaks
        if name == "fsdp":
            # Weights, gradients, what is gathered and sent; DeepSpeed has four shards of each weight
            assert peaks["step"] <= whole * 0.8, peaks


def test_the_counters_see_a_whole_model():
    """The control: a mode that cuts nothing has the whole model on its device."""
    config = Config(train=TrainConfig(device="cpu", threads=1, precision="fp32", learning_rate=0.1))
    with Single(config) as mode:
        model = tiny_model().train()
        whole = num_bytes(model.parameters())
        with Moved() as moved:
            mode.setup(model, config)
        inputs = collate(token_rows([3, 4]), None, model.layout(True))
        with WholeParameters(model) as parameters, LiveBytes() as live:
            mode.forward(inputs).sum().backward()
    assert moved.live.peak >= whole
    assert parameters.peak == whole
    assert live.peak >= whole


def test_fsdp_sends_one_unit_after_the_other_to_the_device():
    """From a host whose memory is not that of the device."""
    config = Config(train=TrainConfig(device="cpu", threads=1, precision="fp32", learning_rate=0.1))
    OnHost.sent = LiveBytes()
    with FSDP(config) as mode:
        model = tiny_model(**SIZES).train()
        whole = num_bytes(model.parameters())
        unit = num_bytes(model.model.bert.encoder.layer[0].parameters())
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                module._parameters[name] = nn.Parameter(OnHost(parameter.data))
        mode.setup(model, config)
        assert num_bytes(model.parameters()) == whole
    assert 0 < OnHost.sent.peak <= unit
