"""A device of torch's own that is not CUDA: `npu`, whose tensors hold tensors of the CPU.

torch loads it as it loads torch_npu, by the entry point `torch.backends` of an installed package;
`installed(folder)` writes such a package. WRONG_NPU in the environment names an operation, such as
`aten.gelu.default`, whose results are off by a hundredth.

https://docs.pytorch.org/tutorials/unstable/python_extension_autoload.html
"""

import os

import torch
from torch.utils import backend_registration
from torch.utils._pytree import tree_map

from tests.processes import ROOT

KEPT = []


class Module(backend_registration._DummyBackendModule):
    """What torch.npu is."""

    device_count = staticmethod(lambda: 2)
    get_rng_state = staticmethod(lambda device=None: torch.get_rng_state())
    set_rng_state = staticmethod(lambda state, device=None: None)
    get_device_name = staticmethod(lambda device=None: "stand-in")
    max_memory_allocated = staticmethod(lambda device=None: 3 * 2**20)


class OnNpu(torch.Tensor):
    """A tensor on the device; `held` has its values."""

    @staticmethod
    def __new__(cls, held):
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        tensor = torch.Tensor._make_wrapper_subclass(cls, held.size(), device="npu:0", **layout)
        tensor.held = held
        return tensor

    def tolist(self):
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return compute(function, *args, **(kwargs or {}))


def compute(function, *args, **kwargs):
    """Compute on the CPU; the results are on the device, unless they are asked for on the CPU."""
    wanted = kwargs.get("device")
    if wanted is not None and torch.device(wanted).type == "cpu":
        return function(args[0].held, *args[1:], **kwargs)
    if function is torch.ops.aten.copy_.default and not isinstance(args[0], OnNpu):
        return args[0].copy_(args[1].held)
    if function is torch.ops.aten.copy_.default:
        # As MPS does, it would read memory that may have been freed
        assert args[2:] != (True,), "a copy from memory that is not pinned, without waiting"
    taken = {}

    def to_cpu(value):
        if isinstance(value, OnNpu):
            taken[id(value.held)] = value
            return value.held
        return torch.device("cpu") if isinstance(value, torch.device) else value

    def to_npu(value):
        # An operation in place returns what it was given
        return (
            taken.get(id(value)) if id(value) in taken else OnNpu(value) if torch.is_tensor(value) else value
        )

    args, kwargs = tree_map(to_cpu, (args, kwargs))
    results = function(*args, **kwargs)
    if str(function) == os.environ.get("WRONG_NPU"):
        results = results * 1.01
    # Tensors of a subclass cannot be made in this mode
    with torch.inference_mode(False):
        return tree_map(to_npu, results)


def load():
    """Register the device."""
    hook = type("Hook", (backend_registration._DummyPrivateUse1Hook,), {"device_count": lambda self: 2})()
    backend_registration._setup_privateuseone_for_python_backend("npu", Module(), hook)
    # What is not called with a tensor of the device, such as torch.zeros
    library = torch.library.Library("_", "IMPL")
    library.fallback(compute, "PrivateUse1")
    KEPT.append(library)


def installed(folder):
    """Write the package into a folder; return the environment of a process that has it."""
    information = folder / "stand_in_npu-1.0.dist-info"
    information.mkdir(exist_ok=True)
    (information / "METADATA").write_text("Name: stand-in-npu\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[torch.backends]\nnpu = tests.stand_in_npu:load\n")
    paths = [str(folder), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
