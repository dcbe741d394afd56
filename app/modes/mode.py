"""What the loop asks of a mode: the defaults are one process on one device. Below are the
modes of torch: one process, DataParallel, DDP (started by a launcher or by spawn), FSDP2.

https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

import warnings
from collections import defaultdict
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Self

import torch
from torch import nn
from torch.distributed.checkpoint import state_dict
from torch.distributed.checkpoint.state_dict import StateDictOptions
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from ..config.schema import Config
from ..errors import TrainingError, listed
from ..runtime.cuda_graphs import CudaGraphs
from ..runtime.devices import Precision, choose_device, fastest_precision, has_memory, is_cuda
from ..runtime.machine import set_up_machine
from ..runtime.memory import keep_few_kernels
from .group import Group
from .torch_group import TorchGroup

Tensors = dict[str, torch.Tensor]
# A trained weight that never had a gradient has this name in place of its state
NO_GRADIENT = "no_gradient"
Wrapped = tuple[nn.Module, torch.optim.Optimizer]


class Mode:
    """What the loop asks of a mode: a context manager that joins and leaves the processes,
    and sets the machine up. A run enters it, and calls `setup`, which wraps the model and
    builds the optimizer, and `warm_up`; then in each step `micro_batch` around `forward`
    and `backward`, and `step`. The loop writes the learning rate into the groups of
    `optimizer`, and frees the gradients by it. Communication is in `group`, arithmetic in
    `precision`."""

    launcher = "one"  # what starts the processes; `launch` and `launch_command` in launch.py know them
    group_class: type[Group] = Group
    accepts_packed = True  # whether the wrapped model takes packed batches
    is_sharded = False  # whether a rank holds only its part of the weights or of the optimizer's state
    has_float64 = True  # whether it can train weights in float64, as `python -m app verify` does
    package = "torch"  # what the mode needs
    install = ""  # the command that installs it
    state_form = "whole"  # how a training state is cut, which must not change when a run resumes

    def __init__(self, config: Config) -> None:
        self.config = config

    @classmethod
    def unavailable_reason(cls) -> str | None:
        """Return what this machine lacks to run the mode, with the remedy, or None."""
        with suppress(ImportError):
            if find_spec(cls.package):
                return None
        return f"this mode needs {cls.package}, which is not there for this torch; install it: {cls.install}"

    def __enter__(self) -> Self:
        keep_few_kernels()
        self.group = self.group_class()
        self.device = choose_device(self.config.train.device, self.group.local_rank)
        if has_memory(self.device):
            torch.accelerator.set_device_index(self.device)
        self.group.join(self.device, self.config.train.timeout)
        precision = self.config.train.precision
        if precision == "auto" and self.group.rank == 0:
            precision = fastest_precision(self.device)
        train = replace(self.config.train, precision=self.group.broadcast(precision))
        self.config = replace(self.config, train=train)
        self.start_library()
        set_up_machine(train, self.device, self.group.local_world_size)
        return self

    def start_library(self) -> None:
        """Start what the mode needs beside the group, which has been joined."""

    def __exit__(self, *failure: Any) -> None:
        self.group.leave(has_failed=failure[0] is not None)

    def setup(self, model: nn.Module, config: Config) -> None:
        """Move the model to the device, wrap it and build its optimizer by `config`; every rank calls it."""
        self.config = config
        self.precision = Precision(self.config.train.precision, self.device, not self.is_sharded)
        # In fp16 small gradients would round to zero; in other precisions it does nothing
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision.name == "fp16")
        model.autocast = self.precision.autocast
        self.module, self.optimizer = self.wrap(self.on_device(model))
        self.parameters = list(trained_parameters(self.module).values())

    def on_device(self, model: nn.Module) -> nn.Module:
        """Return the model on the device; a mode that cuts the model moves one part after the other."""
        return model.to(self.device)

    def wrap(self, model: nn.Module) -> Wrapped:
        """Return the model as the loop calls it, and its optimizer."""
        return model, model.build_optimizer(self.config.train)

    def unwrapped_module(self) -> nn.Module:
        """Return the model without this mode's wrapper, which has it as `module`, whatever the library."""
        return getattr(self.module, "module", self.module)

    def warm_up(self, inputs: dict[str, torch.Tensor]) -> None:
        """Do what the mode does in its first pass only, on inputs that do not count; every rank calls it."""

    def recorder(self) -> CudaGraphs | None:
        """Return what records the passes of the bare model. None where the device cannot, or where more has
        to happen in a pass than the kernels of the model, such as the gathering of shards."""
        return None

    def micro_batch(self, is_last: bool) -> AbstractContextManager:
        """Return the context of forward *and* backward; unless `is_last`, gradients are not synchronised."""
        return nullcontext()

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the model's outputs for inputs on this rank's device, in the precision of the model."""
        return self.module(**inputs)

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of `loss`: this rank's sum over rows, divided by the rows of
        the global batch. After the last micro-batch of a step, gradients are sums over all
        ranks: where a library takes their mean, the mode undoes that."""
        self.scaler.scale(loss).backward()

    def step(self, max_norm: float) -> tuple[torch.Tensor, bool]:
        """Unscale all gradients, clip their L2 norm to `max_norm` (0: only measure), and
        make the optimizer's step. Return the norm before, (), and whether the step was
        skipped: fp16 overflowed."""
        self.scaler.unscale_(self.optimizer)
        norm = self.clip_gradients(max_norm)
        scale = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return norm, self.scaler.get_scale() < scale

    def clip_gradients(self, max_norm: float) -> torch.Tensor:
        """Clip the L2 norm of all gradients to `max_norm` (0: only measure); return the norm before, ()."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = full_tensor(nn.utils.get_total_norm(gradients))
        # On the CPU, gradients that need no clipping are left alone; elsewhere the device would have to be
        # waited for to know. The factor is that of clip_grads_with_norm_.
        is_below = norm.device.type == "cpu" and bool(max_norm / (norm + 1e-6) >= 1)
        if max_norm and not is_below:
            nn.utils.clip_grads_with_norm_(self.parameters, max_norm, norm)
        return norm

    # The state of training has one form, whole tensors on the CPU by the parameter names of transformers'
    # model, so that a run can be resumed in another mode or number of processes. Every rank calls what
    # follows. What is returned is whole on rank 0, and what is loaded is given there.

    def weights(self) -> Tensors:
        """Return the weights; where an adapter is trained, only what is trained."""
        module = self.unwrapped_module()
        is_partial = module.adapter is not None
        # Where other processes are connected by a group of the user's program, these weights are still whole
        is_full = self.group.is_of_torch
        options = StateDictOptions(full_state_dict=is_full, cpu_offload=True, ignore_frozen_params=is_partial)
        weights = state_dict.get_model_state_dict(module.model, options=options)
        return self.copies(weights)

    def load_weights(self, weights: Tensors) -> None:
        """Load what `weights` returned; what is not trained may be missing, and stays as it is."""
        model = self.unwrapped_module().model
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=self.group.is_of_torch)
        options.strict = all(parameter.requires_grad for parameter in model.parameters())
        # It changes the dictionary that it gets
        state_dict.set_model_state_dict(model, dict(weights), options=options)

    def optimizer_state(self) -> Tensors:
        """Return the optimizer state; its keys are such as `state.classifier.bias.exp_avg`.
        A weight that has had no gradient yet, as an unused pooler, has an empty tensor:
        `state.pooler.weight.no_gradient`."""
        model = self.unwrapped_module().model
        if not self.optimizer.state:
            # torch would make an optimizer step to get a state
            return {}
        options = StateDictOptions(
            full_state_dict=self.group.is_of_torch, cpu_offload=True, flatten_optimizer_state_dict=True
        )
        flat = state_dict.get_optimizer_state_dict(model, self.optimizer, options=options)
        # It also has the settings of the parameter groups, which follow from the configuration
        tensors = {name: value for name, value in flat.items() if name.startswith("state.")}
        state = self.copies(tensors)
        if self.group.rank == 0:
            for name, parameter in trained_parameters(model).items():
                if parameter not in self.optimizer.state:
                    state[f"state.{name}.{NO_GRADIENT}"] = torch.empty(0)
        return state

    def load_optimizer_state(self, tensors: Tensors) -> None:
        """Load what `optimizer_state` returned; raises TrainingError, on every rank, unless
        it is that of the trained parameters."""
        if not self.group.broadcast(bool(tensors)):
            return
        model = self.unwrapped_module().model
        trained = trained_parameters(model)
        state = defaultdict(dict)
        for key, value in tensors.items():
            parameter_name, _, name = key.removeprefix("state.").rpartition(".")
            state[parameter_name][name] = value
        loaded_names = self.group.broadcast(list(state))
        check_names("states of the optimizer", needed=trained, loaded=loaded_names, allowed=trained)
        without_gradient = [name for name, values in state.items() if NO_GRADIENT in values]
        without_gradient = self.group.broadcast(without_gradient)
        loaded_state = {name: values for name, values in state.items() if name not in without_gradient}
        whole_state = state_dict.get_optimizer_state_dict(model, self.optimizer) | {"state": loaded_state}
        if not tensors:
            # Rank 0 has the tensors, and sends them
            whole_state = {}
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=self.group.is_of_torch)
        # The names have been checked
        options.strict = False
        state_dict.set_optimizer_state_dict(model, self.optimizer, whole_state, options=options)
        for name in without_gradient:
            # torch has made a step of no size to get a state for each parameter
            self.optimizer.state.pop(trained[name], None)

    def gradients(self) -> Tensors:
        """Return the gradients, unscaled, on every rank; to be called before the optimizer step."""
        scale = self.scaler.get_scale()
        gradients = {}
        for name, parameter in self.unwrapped_module().named_parameters():
            if parameter.grad is not None:
                gradient = full_tensor(parameter.grad).detach()
                gradients[name] = (gradient / scale).cpu()
        return gradients

    def copies(self, tensors: Tensors) -> Tensors:
        """Return tensors that later steps do not change: on the CPU torch gives the parameters themselves."""
        if has_memory(self.device):
            return tensors
        return {name: tensor.clone() for name, tensor in tensors.items()}


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def check_names(values: str, needed: Iterable[str], loaded: Iterable[str], allowed: Iterable[str]) -> None:
    """Raise TrainingError unless all the needed names of parameters are loaded, and only
    allowed ones. `values` says in the message what is loaded."""
    missing = sorted(set(needed) - set(loaded))
    unknown = sorted(set(loaded) - set(allowed))
    if missing or unknown:
        raise TrainingError(
            f"the {values} of a run must be those of its model; "
            f"missing: {listed(missing, 3) or 'none'}; of no parameter: {listed(unknown, 3) or 'none'}; "
            "resume with the version of this program that wrote them, "
            "or start a new run in another output.dir"
        )


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole of a tensor that may be sharded over the ranks; every rank must call it."""
    if hasattr(tensor, "full_tensor"):
        return tensor.full_tensor()
    return tensor


def graphs_on(device: torch.device) -> CudaGraphs | None:
    """Return what records functions on a device, None where torch cannot."""
    return CudaGraphs(device) if is_cuda(device) else None


class Single(Mode):
    """One process on one device, an accelerator or the CPU: the defaults of `Mode`."""

    def recorder(self) -> CudaGraphs | None:
        return graphs_on(self.device)


class DataParallel(Mode):
    """One process drives all GPUs; each pass copies the model, and splits dim 0 of the
    inputs: the batch must be padded, not packed."""

    accepts_packed = False

    def wrap(self, model: nn.Module) -> Wrapped:
        module = model
        if is_cuda(self.device):
            # The first one must be that of the model
            own_index = self.device.index
            device_indices = sorted(range(torch.cuda.device_count()), key=lambda index: index != own_index)
            module = nn.DataParallel(model, device_indices)
        return module, model.build_optimizer(self.config.train)


class ProcessGroupMode(Mode):
    """A rank of a torch process group."""

    launcher = "torchrun"
    group_class = TorchGroup

    def backward(self, loss: torch.Tensor) -> None:
        # The factor undoes the averaging over ranks, which would make a mean of means
        super().backward(loss * self.group.world_size)


class DDP(ProcessGroupMode):
    """Each rank has the whole model. Gradients are averaged over ranks during the backward pass."""

    def wrap(self, model: nn.Module) -> Wrapped:
        # torch 2.13 renames broadcast_buffers; 2.11 does not know the new name
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            module = DistributedDataParallel(
                model,
                broadcast_buffers=False,
                gradient_as_bucket_view=True,
                # A model that is not like BERT may have weights that no pass uses, as BigBird's pooler
                find_unused_parameters=not model.can_pack,
            )
        return module, model.build_optimizer(self.config.train)

    def warm_up(self, inputs: dict[str, torch.Tensor]) -> None:
        # DDP rebuilds its buckets after the first backward pass, and three or more ranks add up the values of
        # a bucket in an order that depends on their place in it. With the buckets rebuilt before the first
        # step, a resumed run computes the same bits as one that was never stopped.
        self.forward(inputs).sum().backward()
        self.optimizer.zero_grad()

    def recorder(self) -> CudaGraphs | None:
        return graphs_on(self.device)

    def micro_batch(self, is_last: bool) -> AbstractContextManager:
        # Around the forward pass too: DDP decides there whether this backward is synchronised.
        if is_last:
            return nullcontext()
        return self.module.no_sync()


class SpawnedDDP(DDP):
    """DDP with processes that `mp.spawn` starts: one command, with no launcher."""

    launcher = "spawn"


class FSDP(ProcessGroupMode):
    """Parameters, gradients and optimizer state are sharded over the ranks, and parameters
    are gathered layer by layer. The optimizer is built on shards, after the wrapping."""

    is_sharded = True

    def on_device(self, model: nn.Module) -> nn.Module:
        # `fully_shard` moves a unit, and cuts it before the next one
        return model

    def wrap(self, model: nn.Module) -> Wrapped:
        mesh = init_device_mesh(self.device.type, (self.group.world_size,))
        layers, float32_parts = modules_to_shard(model.model.base_model)
        policy = MixedPrecisionPolicy()
        if self.config.train.precision == "bf16":
            # Matrices of layers are sent as autocast casts them; shards, summed gradients and optimizer stay
            # fp32. Autocast casts no norms and embeddings: in bf16 they would make bf16 of the states.
            # Not for fp16: the loss scaler would have to fit gradients of fp16 parameters too.
            policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
            for module in float32_parts:
                fully_shard(module, mesh=mesh)
        for layer in layers:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        # The embeddings and the head
        fully_shard(model, mesh=mesh)
        return model, model.build_optimizer(self.config.train)

    def unwrapped_module(self) -> nn.Module:
        # After a forward pass FSDP keeps the parameters whole, but the state is that of their shards
        self.module.reshard()
        return self.module


def modules_to_shard(encoder: nn.Module) -> tuple[list[nn.Module], list[nn.Module]]:
    """Return the modules of an encoder that are gathered by themselves, children before
    their parents, as `fully_shard` needs it: its layers, which have numbers for names, and
    the parts of layers that autocast leaves in fp32, which are embeddings and what has no
    matrix, such as norms."""
    layers = []
    float32_parts = []
    prefixes = []
    for name, module in encoder.named_modules():
        is_in_layer = name.startswith(tuple(prefixes))
        if is_in_layer and stays_in_float32(module):
            float32_parts.append(module)
        elif name.rpartition(".")[2].isdigit() and not isinstance(module, nn.ModuleList):
            # A list has no pass of its own, around which it could be gathered
            layers.append(module)
            prefixes.append(f"{name}.")
    return layers[::-1], float32_parts


def stays_in_float32(module: nn.Module) -> bool:
    """Return whether a module has parameters, no modules inside, and nothing that autocast would cast."""
    has_children = next(module.children(), None) is not None
    dimensions = [parameter.dim() for parameter in module.parameters()]
    if has_children or not dimensions:
        return False
    return isinstance(module, nn.Embedding) or max(dimensions) < 2
