"""The contract of all modes: the same job as one process, in float64 to the last digits, compared as `python
-m app verify` does it. Finds the modes by itself; real processes over gloo, forked with the variables that
torchrun or horovodrun sets."""

import random
from itertools import cycle, islice
from pathlib import Path

import pytest
from safetensors.torch import load_file

from app.modes import MODES, load_mode
from app.runs.verify_comparison import FLOAT64_LIMIT, Comparison, compare
from app.runs.verify_result import DTYPE_OF
from tests.modes.contract import CASES, be_rank, be_rank_of_part
from tests.ranks import fork, fork_under_horovod, need

# Accelerate refuses fp16 on the CPU, and DeepSpeed everywhere; it and Horovod have zeros for no gradient
LEFT_OUT = {
    "accelerate": ["fp16", "fp16_overflow"],
    "deepspeed": ["fp16", "fp16_overflow", "unused_weights"],
    "horovod": ["unused_weights"],
}
BF16_REGRESSION = "bf16_regression"
# What the quick suite compares
FEW = ["accumulation_3", "clipped", "fp16_overflow", "tiny_last_batch", "soft"]
# For another number of processes or stage of ZeRO than the usual one
FEWER = [
    "accumulation_3",
    "accumulation_adamw",
    "tiny_last_batch",
    "weighted",
    "clipped",
    "fp16_overflow",
    "windows",
    "regression",
    "ordinal",
    "logit_adjusted",
    "soft",
    "soft_weighted_padded",
    "soft_adamw",
    "masked_language_modelling",
    "lora",
    "lora_padded_adamw",
    "frozen_embeddings_padded",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A folder with 80 rows of three classes, of very different lengths; in other files they have from none
    to all three of them, a number, or probabilities of the classes."""
    folder = tmp_path_factory.mktemp("contract")
    words = "今天天气很好我们去公园散步看见一只小猫心情不错吃了火锅排队两个小时太久快递又丢了客服不理人"
    generator = random.Random(0)
    lengths = [generator.choice([2, 3, 5, 8, 13, 21, 28]) for _ in range(80)]
    texts = ["".join(generator.choices(words, k=length)) for length in lengths]
    sets_of_labels = ["", "a", "b|c", "c", "a|b|c"]
    answers = {
        "data.tsv": list(islice(cycle("abc"), 80)),
        "sets.tsv": list(islice(cycle(sets_of_labels), 80)),
        "scores.tsv": [1000 + length / 2 for length in lengths],
    }
    for name, column in answers.items():
        lines = []
        for index, (text, answer) in enumerate(zip(texts, column, strict=True)):
            lines.append(f"{text}{index}\t{answer}\n")
        (folder / name).write_text("".join(lines), encoding="utf-8")
    for name, adds_up in (("soft.csv", True), ("soft_sets.csv", False)):
        lines = ["text,p_a,p_b,p_c\n"]
        for index, text in enumerate(texts):
            shares = [generator.random() for _ in "abc"]
            total = sum(shares) if adds_up else 1
            probabilities = ",".join(f"{share / total:.6f}" for share in shares)
            lines.append(f"{text}{index},{probabilities}\n")
        (folder / name).write_text("".join(lines), encoding="utf-8")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(words)]
    (folder / "vocab.txt").write_text("\n".join(tokens), encoding="utf-8")
    return folder


class Trainings:
    """Trainings in modes, each compared with the same one in one process, which is kept for later modes."""

    def __init__(self, data: Path, single_folder: Path) -> None:
        self.data = data
        self.single_folder = single_folder
        self.done_in_single: set[str] = set()

    def differences(
        self, mode: str, nprocs: int, cases: list[str], out: Path, stage: int = 2
    ) -> list[Comparison]:
        """Train cases in a mode, and return what differs from one process."""
        out.mkdir()
        # A broken mode is started as DDP
        mode_class = load_mode(mode if mode in MODES else "ddp")
        precisions = {case: precision_of(case, mode_class.has_float64) for case in cases}
        trainings = [f"{case}:{precision}" for case, precision in precisions.items()]
        self.train_in_single(trainings, stage)
        self.train(mode, nprocs, mode_class.launcher, out, stage, trainings)
        different = []
        for case, precision in precisions.items():
            comparison = Comparison(case, nprocs, precision)
            comparison = compare(comparison, self.single_folder / case, out / case)
            if comparison.verdict != "PASS":
                different.append(comparison)
        return different

    def train_in_single(self, trainings: list[str], stage: int) -> None:
        # Below float64, other sums of the same rows show how far rounding alone moves a result
        controls = [f"{training}-control" for training in trainings if "float64" not in training]
        missing = [name for name in trainings + controls if name not in self.done_in_single]
        if missing:
            self.train("single", 1, "one", self.single_folder, stage, missing)
            self.done_in_single.update(missing)

    def train(
        self, mode: str, nprocs: int, launcher: str, out: Path, stage: int, trainings: list[str]
    ) -> None:
        words = (mode, str(self.data), str(out), str(stage), *trainings)
        log = out / "log"
        start = fork_under_horovod if launcher == "horovodrun" else fork
        start(be_rank, words, nprocs, log)


def precision_of(case: str, has_float64: bool) -> str:
    """Return the precision with which the name of a case begins, or else the most exact one."""
    prefix = case.partition("_")[0]
    if prefix in DTYPE_OF:
        return prefix
    return "float64" if has_float64 else "fp32"


@pytest.fixture(scope="module")
def trainings(data, tmp_path_factory) -> Trainings:
    return Trainings(data, tmp_path_factory.mktemp("single"))


def modes() -> list:
    """A few cases for the quick suite, then every mode but single, with one, two and three processes where a
    launcher starts any number."""
    parameters = [
        pytest.param("dp", 1, FEW, 2, id="dp-few"),
        pytest.param("ddp", 2, FEW, 2, id="ddp-few"),
    ]
    for name in MODES:
        if name == "single":
            continue
        launcher = load_mode(name).launcher
        runs = [(2, 2), (1, 2), (3, 2)]
        # Each mode with its own way of making a step trains every case in two processes
        run_with_every_case = (2, 2)
        if launcher == "one":
            runs = [(1, 2)]
            run_with_every_case = (1, 2)
        elif launcher == "spawn":
            # It is DDP, only started in another way
            runs = [(2, 2)]
            run_with_every_case = None
        if name == "deepspeed":
            runs += [(2, 1), (2, 3)]
        for count, stage in runs:
            cases = CASES if (count, stage) == run_with_every_case else FEWER
            label = f"{name}-{count}-stage{stage}"
            parameters.append(pytest.param(name, count, cases, stage, id=label, marks=pytest.mark.slow))
    return parameters


@pytest.mark.parametrize(("mode", "nprocs", "cases", "stage"), modes())
def test_same_job_as_single(mode, nprocs, cases, stage, trainings, tmp_path):
    need(mode)
    cases = [case for case in cases if case in CASES and case not in LEFT_OUT.get(mode, ())]
    assert trainings.differences(mode, nprocs, cases, tmp_path / "out", stage) == []
    if BF16_REGRESSION in cases:
        check_logits_in_bf16(tmp_path / "out")


def check_logits_in_bf16(out: Path) -> None:
    """Check that the logits of a regression in bf16 are no steps of bf16: it would predict 256 numbers
    between two powers of two."""
    logits = load_file(out / BF16_REGRESSION / "bf16.safetensors")["logits"]
    assert (logits != logits.bfloat16().float()).any()


def test_masks_of_ranks_are_caught(trainings, tmp_path):
    """The control of the tests above: with the rank in its keys, a mode trains another model."""
    [comparison] = trainings.differences("MasksOfRanks", 2, ["sgd"], tmp_path / "out")
    assert comparison.differences["weights"] > 1e-4


# Steps that can be replayed: of one micro-batch, packed, without windows and masked words
REPLAYED = [
    "sgd",
    "empty_shard_adamw",
    "fp32",
    "bf16",
    "fp16",
    "fp16_overflow",
    "soft_adamw",
    "frozen_encoder_adamw",
    "lora_adamw",
]


@pytest.mark.parametrize(
    ("mode", "nprocs", "cases"),
    [
        ("ReplayedDDP", 2, ["empty_shard_adamw", "fp16_overflow", "lora_adamw"]),
        ("ReplayedAtTimes", 2, ["sgd", "soft_adamw"]),
        pytest.param("ReplayedSingle", 1, REPLAYED, marks=pytest.mark.slow),
        pytest.param("ReplayedDDP", 1, REPLAYED, marks=pytest.mark.slow),
        pytest.param("ReplayedDDP", 2, REPLAYED, marks=pytest.mark.slow),
        pytest.param("ReplayedDDP", 3, REPLAYED, marks=pytest.mark.slow),
        pytest.param("ReplayedAccelerate", 2, REPLAYED, marks=pytest.mark.slow),
    ],
)
def test_replayed_passes_are_the_same_job(mode, nprocs, cases, trainings, tmp_path):
    """Batches are filled up, and the gradients of all ranks are added up in one buffer."""
    if "Accelerate" in mode:
        need("accelerate")
        cases = [case for case in cases if case not in LEFT_OUT["accelerate"]]
    cases = [case for case in cases if case in CASES]
    assert trainings.differences(mode, nprocs, cases, tmp_path / "out") == []


def test_after_memory_ran_out_it_is_the_same_job(trainings, tmp_path):
    cases = ["sgd", "soft_adamw"]
    assert trainings.differences("LittleMemory", 1, cases, tmp_path / "out") == []


@pytest.mark.parametrize(
    ("parts", "case"),
    [
        ([("ddp", 2, 2), ("single", 1, 4)], "accumulation_adamw"),
        pytest.param(
            [("ddp", 2, 1), ("fsdp", 3, 2), ("accelerate", 2, 3), ("single", 1, 4)],
            "soft_adamw",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["ddp-single", "many"],
)
def test_a_run_that_resumes_in_other_processes_has_the_weights_of_one_that_was_never_stopped(
    parts, case, data, tmp_path
):
    """In float64, with dropout, through the states that a run resumes from."""
    whole = tmp_path / "whole"
    stopped = tmp_path / "stopped"
    for folder, modes_of_run in ((whole, [("single", 1, 4)]), (stopped, parts)):
        folder.mkdir()
        for mode, nprocs, last_step in modes_of_run:
            words = (mode, str(data), str(folder), case, str(last_step))
            fork(be_rank_of_part, words, nprocs, folder / "log")
    expected = load_file(whole / "state.safetensors")
    result = load_file(stopped / "state.safetensors")
    assert set(result) == set(expected)
    for name, value in expected.items():
        difference = (result[name] - value).double().norm()
        assert difference <= FLOAT64_LIMIT * value.double().norm() + 1e-15, name


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["single", "mp", "deepspeed"])
def test_logits_of_a_mode_in_bf16_are_no_steps_of_bf16(mode, trainings, tmp_path):
    """Of the modes that do not train every case above in this way; DeepSpeed in stage 3."""
    need(mode)
    nprocs = 1 if load_mode(mode).launcher == "one" else 2
    trainings.differences(mode, nprocs, [BF16_REGRESSION], tmp_path / "out", 3)
    check_logits_in_bf16(tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "caught_by"),
    [
        ("MeanOfMeans", ["accumulation_3", "tiny_last_batch"]),
        ("MasksOfRanks", ["padded", "soft", "masked_language_modelling"]),
        ("ForgottenZeroGrad", ["sgd"]),
        ("ForgottenAllReduce", ["sgd"]),
        ("MissingUnscale", ["clipped"]),
        ("UnsynchronisedGradients", ["sgd", "fp32", "bf16"]),
        ("WrongPrecision", ["bf16"]),
        ("StatesInBF16", ["bf16_decoder", "bf16_modernbert"]),
    ],
)
def test_a_broken_mode_is_caught_by_far(broken, caught_by, trainings, tmp_path):
    """The control: the suite must fail for modes with the mistakes that copied scripts have."""
    nprocs = 1 if broken == "WrongPrecision" else 2
    different = trainings.differences(broken, nprocs, caught_by, tmp_path / "out")
    assert [comparison.mode for comparison in different] == caught_by
    if broken == "WrongPrecision":
        # fp16 is nearer to fp32 than bf16 is, so another precision is found by its name
        rule = "it computed in torch.float16, and torch.bfloat16 was asked for"
        assert rule in different[0].reason
    for comparison in different:
        if broken == "StatesInBF16":
            rule = "states into model.model.layers.0 are torch.bfloat16, and torch.float32 in one process"
            assert rule in comparison.reason
        assert max(comparison.differences.values()) > 1000 * FLOAT64_LIMIT
