"""Variable-length attention for packed batches on CUDA, by torch's kernels, which are checked first."""

import logging
from functools import cache
from itertools import pairwise

import torch
from torch.nn.functional import scaled_dot_product_attention

from ..errors import listed
from ..runtime.devices import is_cuda
from .row_attention import attend_in_groups

logger = logging.getLogger(__name__)
# That of fp32 allows for TF32
TOLERANCES = {torch.float32: 5e-3, torch.bfloat16: 5e-2, torch.float16: 1e-2}


@cache
def has_varlen_kernels(
    device: torch.device, head_size: int, causal: bool = False, has_window: bool = False
) -> bool:
    """Return whether torch has kernels for `attend_varlen` on a device, with the results of attention row by
    row: for all layers, and for `has_window` for those with a window too.

    They exist for CUDA from compute capability 8.0, not for ROCm. They are private functions of torch, so
    they are tried once.
    """
    if not is_cuda(device) or torch.version.hip or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    if head_size % 8 or head_size > 256:
        return False
    try:
        windows = (None, 2) if has_window else (None,)
        wrong = [
            dtype
            for dtype in TOLERANCES
            if not all(varlen_agrees(device, head_size, dtype, causal, window) for window in windows)
        ]
        problem = f"wrong results for {listed(wrong)}" if wrong else ""
    except (RuntimeError, TypeError, AttributeError) as error:
        problem = str(error).splitlines()[0]
    if problem:
        logger.warning("variable-length attention is not used on %s: %s", device, problem)
    return not problem


def varlen_agrees(
    device: torch.device,
    head_size: int,
    dtype: torch.dtype,
    causal: bool = False,
    window: int | None = None,
) -> bool:
    """Return whether `attend_varlen` and its gradients are right on rows of 3, 1 and 5 tokens."""
    starts = [0, 3, 4, 9]
    offsets = torch.tensor(starts, dtype=torch.int32, device=device)
    with torch.inference_mode(False), torch.enable_grad():
        numbers = torch.arange(4 * 9 * 2 * head_size, device=device).sin().view(4, 9, 2, head_size)
        *states, weights = (tensor.to(dtype).clone().requires_grad_() for tensor in numbers)
        places = torch.arange(5, device=device)
        distance = places[:, None] - places
        mask = (distance.abs() < (window or 5)) & (distance >= (0 if causal else -5))
        by_row = [
            scaled_dot_product_attention(
                *(tensor[start:end].transpose(0, 1)[None] for tensor in states),
                attn_mask=mask[: end - start, : end - start],
            )[0]
            for start, end in pairwise(starts)
        ]
        results = []
        for output in (
            attend_varlen(*states, offsets, offsets, 5, 5, 0.0, None, causal, window),
            torch.cat(by_row, 1).transpose(0, 1),
        ):
            results.append([output, *torch.autograd.grad((output * weights).sum(), states)])
        tolerance = TOLERANCES[dtype]
        return all(
            torch.allclose(ours, expected, tolerance, tolerance)
            for ours, expected in zip(*results, strict=True)
        )


def attend_varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    query_offsets: torch.Tensor,
    key_offsets: torch.Tensor,
    longest_query: int,
    longest_key: int,
    dropout: float,
    scaling: float | None,
    causal: bool = False,
    window: int | None = None,
) -> torch.Tensor:
    """Let the tokens of each packed row attend to those of the same row, in one kernel without any padding.

    `query`: (all queries, heads, head_size), returned in the same shape; `key`, `value`: (total_tokens, key
    heads, head_size); `query_offsets`, `key_offsets`: (num_rows + 1,) int32, the start of each row, and the
    end of the last, which must be the end of the tensor: tokens after it would get NaN gradients without an
    error (https://github.com/pytorch/pytorch/issues/176793). No row may be empty. `causal` and `window` as in
    `attend_in_groups`.

    The kernels are those behind torch's `varlen_attn`, which takes no dropout
    (https://github.com/pytorch/pytorch/pull/179390). Where there is none, rows attend one by one, slowly.
    """
    has_no_kernel = query.dtype == torch.float32 and window is not None and not causal
    if not (is_cuda(query.device) or query.is_meta) or has_no_kernel:
        lengths = [offsets.diff().tolist() for offsets in (query_offsets, key_offsets)]
        shapes = [(1, length, False) for length in lengths[1]]
        mask = torch.ones(len(key), dtype=torch.bool, device=key.device)
        states = (query, key, value, lengths[0], shapes, mask)
        return attend_in_groups(*states, dropout, scaling, causal, window)
    if key.shape[1] != query.shape[1]:
        key, value = (states.repeat_interleave(query.shape[1] // key.shape[1], 1) for states in (key, value))
    rows = (query_offsets, key_offsets, longest_query, longest_key)
    if query.dtype == torch.float32:
        states = (query[None], key[None], value[None])
        needs_grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in states)
        # A causal mask from the top left is 1
        outputs = torch.ops.aten._efficient_attention_forward(
            *states, None, *rows, dropout, int(causal), needs_grad, scale=scaling, window_size=window
        )
        return outputs[0][0]
    sides = {}
    if window is not None:
        sides = {"window_size_left": window - 1, "window_size_right": 0 if causal else window - 1}
    return torch.ops.aten._flash_attention_forward(
        query, key, value, *rows, dropout, causal, False, scale=scaling, **sides
    )[0]
