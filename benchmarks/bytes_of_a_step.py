"""Count the bytes that the second step of a run reads and writes, by kind of operation; products apart.

python -m benchmarks.bytes_of_a_step --config configs/weibo_emotion6.yaml --train.precision bf16
"""

import sys
from collections import Counter
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from app.config.command_line import load_config
from app.modes.mode import Single
from app.training.step import train_steps
from app.training.train import Run

PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}
# These read and write nothing, or a single value
FREE = {
    "view",
    "t",
    "transpose",
    "expand",
    "detach",
    "split",
    "split_with_sizes",
    "unbind",
    "slice",
    "select",
}
FREE |= {
    "as_strided",
    "_unsafe_view",
    "alias",
    "empty",
    "empty_like",
    "empty_strided",
    "squeeze",
    "unsqueeze",
}
FREE |= {"permute", "new_empty", "new_zeros", "_local_scalar_dense", "lift_fresh"}
OF_ROWS = {"embedding", "index_select"}  # of their source they read what they write


def size_of(values: Any) -> int:
    """Return the bytes of all tensors in `values`; what is repeated by expand counts once."""
    tensors = [one for one in tree_leaves(values) if isinstance(one, torch.Tensor)]
    return sum(min(one.numel() * one.element_size(), one.untyped_storage().nbytes()) for one in tensors)


class Counting(TorchDispatchMode):
    """Counts bytes while operations run; products in bf16 run in fp32, as some CPUs are slow in them."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.times, self.operations = Counter(), Counter(), 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None) -> Any:
        name, kwargs = function.overloadpacket.__name__, kwargs or {}
        if name in PRODUCTS:
            tensors = [one.float() if isinstance(one, torch.Tensor) else one for one in args]
            output = function(*tensors, **kwargs)
            self.operations += 2 * output.numel() * args[-1].shape[-2]
            return output.to(args[-1].dtype)
        output = function(*args, **kwargs)
        if name in FREE:
            return output
        if name == "_to_copy":
            name = f"{args[0].dtype} to {output.dtype}"
        read = size_of(output) if name in OF_ROWS else size_of((args, kwargs))
        # AdamW writes weights and both moments in their place
        written = size_of((args[0], args[2], args[3])) if name == "_fused_adamw_" else size_of(output)
        self.bytes[name] += read + written
        self.times[name] += 1
        return output


def main() -> None:
    with TemporaryDirectory() as folder:
        more = ["--train.max_steps", "2", "--output.dir", f"{folder}/run", "--output.trackers", "[]"]
        config, counting = load_config([*sys.argv[1:], *more], "run_single.py"), Counting()

        def after_step(progress, step) -> None:
            if step.step == 1:
                counting.__enter__()
            else:
                counting.__exit__(None, None, None)
                flop, total = counting.operations / 1e9, sum(counting.bytes.values()) / 1e9
                print(f"{step.tokens} tokens; products {flop:.1f} GFLOP; all else {total:.2f} GB")

        with Single(config) as mode:
            run = Run("single", mode)
            try:
                plan, loss = run.components.plan, run.components.task.loss
                train_steps(mode, run.components.loaders["train"], plan, loss, run.progress, after_step)
            finally:
                run.closing.close()
    for name, size in counting.bytes.most_common():
        print(f"{name:36} {size / 1e6:9.1f} MB {counting.times[name]:6}")


if __name__ == "__main__":
    main()
