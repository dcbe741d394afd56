"""The contract of all modes: the same job as one process, in float64 to the last digits, compared as `python
-m app verify` does it. Finds the modes by itself; real processes over gloo, forked with the variables that
torchrun or horovodrun sets."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file

from app.modes import MODES, load_mode
from app.runs.verify import DTYPE_OF, FLOAT64_LIMIT, Comparison, compare
from tests.modes.contract import CASES, be_horovod_rank, be_rank, slots_of_horovod
from tests.ranks import fork, need

# Accelerate refuses fp16 on the CPU, and DeepSpeed everywhere; it and Horovod have zeros for no gradient
LEFT_OUT = {"accelerate": ("fp16", "fp16_overflow"), "horovod": ("unused_weights",)}
LEFT_OUT["deepspeed"] = LEFT_OUT["accelerate"] + LEFT_OUT["horovod"]
# What the quick suite compares
FEW = ["accumulation_3", "clipped", "fp16_overflow", "tiny_last_batch", "r_drop"]
# For another number of processes or stage of ZeRO than the usual one
FEWER = [
    *("accumulation_3", "accumulation_adamw", "tiny_last_batch", "weighted", "clipped", "fp16_overflow"),
    *("windows", "regression", "ordinal", "logit_adjusted", "r_drop_tiny_last_batch_padded", "r_drop_adamw"),
    *("masked_language_modelling", "lora", "lora_padded_adamw", "frozen_embeddings_padded"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A folder with 80 rows of three classes, of very different lengths; in other files they have from none
    to all three of them, or a number."""
    folder = tmp_path_factory.mktemp("contract")
    words = "今天天气很好我们去公园散步看见一只小猫心情不错吃了火锅排队两个小时太久快递又丢了客服不理人"
    generator = random.Random(0)
    lengths = [generator.choice([2, 3, 5, 8, 13, 21, 28]) for _ in range(80)]
    texts = ["".join(generator.choices(words, k=length)) for length in lengths]
    sets = ["", "a", "b|c", "c", "a|b|c"]
    for name, label in (
        ("data.tsv", lambda i: "abc"[i % 3]),
        ("sets.tsv", lambda i: sets[i % 5]),
        ("scores.tsv", lambda i: 1000 + lengths[i] / 2),
    ):
        lines = "".join(f"{text}{i}\t{label(i)}\n" for i, text in enumerate(texts))
        (folder / name).write_text(lines, encoding="utf-8")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(words)]
    (folder / "vocab.txt").write_text("\n".join(tokens), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def differ(data, tmp_path_factory) -> Callable[..., list[Comparison]]:
    """Return a function that trains cases in a mode, and returns what differs from one process."""
    place = tmp_path_factory.mktemp("single")
    known = set()

    def train(mode: str, nprocs: int, launcher: str, out: Path, stage: int, trainings: list[str]) -> None:
        words = (mode, str(data), str(out), str(stage), *trainings)
        log = out / "log"
        if launcher != "horovodrun":
            fork(be_rank, words, nprocs, log)
            return
        from horovod.runner.http.http_server import RendezvousServer

        # The server of horovodrun
        server = RendezvousServer()
        port = server.start()
        server.init(slots_of_horovod(nprocs))
        fork(be_horovod_rank, (port, nprocs, *words), nprocs, log)
        server.stop()

    def compared(mode: str, nprocs: int, cases: list[str], out: Path, stage: int = 2) -> list[Comparison]:
        out.mkdir()
        kind = load_mode(mode) if mode in MODES else load_mode("ddp")
        whole = "float64" if kind.has_float64 else "fp32"
        named = {case: case.partition("_")[0] for case in cases}
        of_case = {case: name if name in DTYPE_OF else whole for case, name in named.items()}
        # Below float64, other sums of the same rows show how far rounding alone moves a result
        trainings = [f"{case}:{precision}" for case, precision in of_case.items()]
        controls = [f"{training}-control" for training in trainings if "float64" not in training]
        if wanted := [one for one in trainings + controls if one not in known]:
            train("single", 1, "one", place, stage, wanted)
            known.update(wanted)
        train(mode, nprocs, kind.launcher, out, stage, trainings)
        rows = [Comparison(case, nprocs, precision) for case, precision in of_case.items()]
        found = [compare(row, place / row.mode, out / row.mode) for row in rows]
        return [row for row in found if row.verdict != "PASS"]

    return compared


def modes() -> list:
    """A few cases for the quick suite, then every mode but single, with one, two and three processes where a
    launcher starts any number."""
    found = [pytest.param(*values, FEW, 2, id=f"{values[0]}-few") for values in (("dp", 1), ("ddp", 2))]
    for name in [name for name in MODES if name != "single"]:
        # One that starts the processes of another mode is that mode
        counts = {"one": (1,), "spawn": (2,)}.get(launcher := load_mode(name).launcher, (2, 1, 3))
        runs = [(count, 2) for count in counts] + [(2, stage) for stage in (1, 3) if name == "deepspeed"]
        # Each mode with its own way of making a step trains every case in two processes; `mp` is DDP
        usual = (1, 2) if launcher == "one" else None if launcher == "spawn" else (2, 2)
        for count, stage in runs:
            cases = CASES if (count, stage) == usual else FEWER
            label = f"{name}-{count}-stage{stage}"
            found.append(pytest.param(name, count, cases, stage, id=label, marks=pytest.mark.slow))
    return found


@pytest.mark.parametrize(("mode", "nprocs", "cases", "stage"), modes())
def test_same_job_as_single(mode, nprocs, cases, stage, differ, tmp_path):
    need(mode)
    cases = [case for case in cases if case in CASES and case not in LEFT_OUT.get(mode, ())]
    assert differ(mode, nprocs, cases, tmp_path / "out", stage) == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_logits_of_a_mode_in_bf16_are_no_steps_of_bf16(mode, differ, tmp_path):
    """A regression would predict 256 numbers between two powers of two."""
    need(mode)
    nprocs = 1 if load_mode(mode).launcher == "one" else 2
    differ(mode, nprocs, ["bf16_regression"], tmp_path / "out", 3)
    logits = load_file(tmp_path / "out" / "bf16_regression" / "bf16.safetensors")["logits"]
    assert (logits != logits.bfloat16().float()).any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "caught_by"),
    [
        ("MeanOfMeans", ["accumulation_3", "tiny_last_batch"]),
        ("ForgottenZeroGrad", ["sgd"]),
        ("MissingUnscale", ["clipped"]),
        ("UnsynchronisedGradients", ["sgd", "fp32", "bf16"]),
        ("WrongPrecision", ["bf16"]),
        ("StatesInBF16", ["bf16_decoder", "bf16_modernbert"]),
    ],
)
def test_a_broken_mode_is_caught_by_far(broken, caught_by, differ, tmp_path):
    """The control: the suite must fail for modes with the mistakes that copied scripts have."""
    # fp16 is nearer to fp32 than bf16 is, so another precision is found by its name
    is_wrong = broken == "WrongPrecision"
    found = differ(broken, 1 if is_wrong else 2, caught_by, tmp_path / "out")
    assert [row.mode for row in found] == caught_by
    rule = "it computed in torch.float16, and torch.bfloat16 was asked for"
    assert not is_wrong or rule in found[0].reason
    if broken == "StatesInBF16":
        rule = "states into model.model.layers.0 are torch.bfloat16, and torch.float32 in one process"
        assert all(rule in row.reason for row in found)
    assert all(max(row.differences.values()) > 1000 * FLOAT64_LIMIT for row in found)
