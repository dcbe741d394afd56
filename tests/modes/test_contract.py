"""The contract of all modes: the same job as one process. Finds the modes by itself; real processes over
gloo: forked with what torchrun sets, or started by the mode's own launcher.

python -m pytest tests/modes/test_contract.py   a few cases of DataParallel and of DDP
python -m pytest tests/modes/test_contract.py -m "slow or not slow"  all modes, broken ones too
"""

import random
import shutil
from pathlib import Path

import pytest
import torch

from app.modes import MODES, load_mode
from app.modes.group import launch_command
from app.modes.mode import Mode
from tests.modes import broken_modes
from tests.modes.contract_worker import CASES, FEWER, work
from tests.processes import ROOT, finish
from tests.ranks import fork

WORKER = str(ROOT / "tests" / "modes" / "contract_worker.py")
# Accelerate refuses fp16 on the CPU, and DeepSpeed everywhere
NOT_ON_CPU = dict.fromkeys(("accelerate", "deepspeed"), ("fp16", "fp16_overflow"))
TOLERANCES = {"sgd": 1e-6, "adamw": 1e-5}
# What the quick suite compares, and on what more the reference itself is checked
FEW = ["accumulation_3", "clipped", "fp16_overflow", "tiny_last_batch", "r_drop"]
OF_THE_REFERENCE = ["sgd", "accumulation_2", "padded", "varlen", "fp16"]


def launch(mode: type[Mode], nprocs: int, data: Path, out: Path, cases: list[str], stage: int = 2) -> None:
    """Run the worker in a mode with `nprocs` processes."""
    out.mkdir()
    target = f"{mode.__module__}:{mode.__name__}"
    if mode.launcher in ("one", "torchrun"):
        fork(work, (target, str(data), str(out), cases, stage), nprocs, out / "log")
        return
    words = [WORKER, target, str(data), str(out), *cases, f"--stage={stage}"]
    command = launch_command(mode.launcher, words, nprocs)
    done = finish(command, timeout=600, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr[-3000:]


def load(folder: Path, case: str) -> dict:
    return torch.load(folder / f"{case}.pt", weights_only=True)


def largest_difference(one: dict, other: dict) -> float:
    assert set(one) == set(other)
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def compare(single: dict, other: dict, case: str) -> list[str]:
    """Return what differs between one process and another mode, as sentences; none is the contract."""
    optimizer = CASES[case].train.get("optimizer", "sgd")
    tolerance = TOLERANCES[optimizer] if "fp16" not in case else 5e-3
    problems = []
    for what in ("weights", "gradients"):
        difference = largest_difference(single[what], other[what])
        if not difference <= tolerance:
            problems.append(f"{what} differ by {difference:.2e}")
    for what in ("losses", "norms", "learning_rates"):
        pairs = [(a, b) for a, b in zip(single[what], other[what], strict=True) if a < float("inf")]
        difference = max(abs(a - b) / max(1.0, abs(a)) for a, b in pairs)
        if not difference <= max(tolerance, 1e-5):
            problems.append(f"{what} differ by {difference:.2e}")
    for what in ("skipped", "updates", "sizes"):
        if single[what] != other[what]:
            problems.append(f"{what} differ: {single[what]} and {other[what]}")
    if not float((single["logits"] - other["logits"]).abs().max()) <= max(10 * tolerance, 1e-5):
        problems.append("logits differ")
    return problems


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """80 rows of three classes, of very different lengths; in other files they have from none to all three
    of them, or a number."""
    path = tmp_path_factory.mktemp("contract") / "data.tsv"
    words = "今天天气很好我们去公园散步看见一只小猫心情不错吃了火锅排队两个小时太久快递又丢了客服不理人"
    generator = random.Random(0)
    texts = [
        "".join(generator.choices(words, k=generator.choice([2, 3, 5, 8, 13, 21, 28]))) for _ in range(80)
    ]
    sets = ["", "a", "b|c", "c", "a|b|c"]
    for name, label in (
        ("data.tsv", lambda i: "abc"[i % 3]),
        ("sets.tsv", lambda i: sets[i % 5]),
        ("scores.tsv", lambda i: 1000 + len(texts[i]) / 2),
    ):
        lines = "".join(f"{text}{i}\t{label(i)}\n" for i, text in enumerate(texts))
        path.with_name(name).write_text(lines, encoding="utf-8")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(words)]
    path.with_name("vocab.txt").write_text("\n".join(tokens), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def single(data) -> Path:
    """One process, the cases of the quick suite."""
    out = data.parent / "single"
    launch(load_mode("single"), 1, data, out, [*FEW, *OF_THE_REFERENCE])
    return out


@pytest.fixture(scope="module")
def single_all(data, single) -> Path:
    """One process, all cases."""
    out = data.parent / "single_all"
    others = [case for case in CASES if not (single / f"{case}.pt").exists()]
    launch(load_mode("single"), 1, data, out, others)
    for path in single.glob("*.pt"):
        shutil.copy(path, out)
    return out


def modes() -> list:
    """Every mode but single, with one, two and three processes where a launcher starts any number."""
    found = []
    for name in MODES:
        if name == "single":
            continue
        launcher = load_mode(name).launcher
        # One that starts the processes of another mode is that mode
        counts = {"one": (1,), "spawn": (2,)}.get(launcher, (2, 1, 3))
        found += [pytest.param(name, nprocs, 2, id=f"{name}-{nprocs}") for nprocs in counts]
    found += [pytest.param("deepspeed", 2, stage, id=f"deepspeed-2-stage{stage}") for stage in (1, 3)]
    return found


def test_every_mode_is_in_the_suite():
    names = {parameter.values[0] for parameter in modes()} | {"single"}
    assert names == set(MODES)
    assert len(names) >= 6, f"only {sorted(names)} were found"


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "nprocs", "stage"), modes())
def test_same_job_as_single(mode, nprocs, stage, data, single_all, tmp_path):
    kind = load_mode(mode)
    if lacks := kind.unavailable_reason():
        pytest.skip(lacks)
    # Every case in two processes of each mode with a step of its own; `mp` starts those of DDP
    is_usual = nprocs == 2 and stage == 2 and kind.launcher != "spawn" or kind.launcher == "one"
    chosen = dict.fromkeys(CASES if is_usual else FEWER).keys() - set(NOT_ON_CPU.get(mode, ()))
    cases = sorted(chosen & CASES.keys())
    launch(kind, nprocs, data, tmp_path / "out", cases, stage)
    assert_same_job(single_all, tmp_path / "out", cases, nprocs)


def assert_same_job(single: Path, other: Path, cases: list[str], nprocs: int) -> None:
    problems = {}
    for case in cases:
        found = load(other, case)
        assert found["world_size"] == nprocs
        assert found["restored"] == 0.0, f"{case}: weights or optimizer state changed by saving and loading"
        assert all(size == count for size, count in found["sizes"].items())
        problems |= {case: compare(load(single, case), found, case)}
    assert not {case: found for case, found in problems.items() if found}
    assert len(problems) == len(cases)


@pytest.mark.parametrize(("mode", "nprocs"), [("dp", 1), ("ddp", 2)])
def test_a_few_cases(mode, nprocs, data, single, tmp_path):
    """What the quick suite knows of the modes; the slow one has all cases."""
    launch(load_mode(mode), nprocs, data, tmp_path / "out", FEW)
    assert_same_job(single, tmp_path / "out", FEW, nprocs)


def test_single_does_what_its_cases_say(single):
    """The reference itself: clipping is active, overflow is skipped and the schedule waits, accumulation
    changes nothing."""
    clipped = load(single, "clipped")
    assert min(clipped["norms"]) > 0.05
    overflow = load(single, "fp16_overflow")
    assert overflow["skipped"][0]
    assert not overflow["skipped"][-1]
    assert overflow["updates"] == overflow["skipped"].count(False)
    assert overflow["learning_rates"][0] == overflow["learning_rates"][overflow["skipped"].count(True)]
    for case in ("accumulation_2", "accumulation_3", "padded", "varlen"):
        assert largest_difference(load(single, "sgd")["weights"], load(single, case)["weights"]) <= 1e-6
    # The gradients and the clipped norm under loss scaling are those without it, but for half precision.
    scaled, plain = load(single, "fp16"), load(single, "clipped")
    assert scaled["norms"][0] == pytest.approx(plain["norms"][0], rel=2e-2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "caught_by"),
    [
        ("MeanOfMeans", ["accumulation_3", "tiny_last_batch"]),
        ("ForgottenZeroGrad", ["sgd"]),
        ("MissingUnscale", ["fp16"]),
        ("UnsynchronisedGradients", ["sgd"]),
    ],
)
def test_a_broken_mode_is_caught(broken, caught_by, data, single, tmp_path):
    """The control: the suite must fail for modes with the mistakes that copied scripts have."""
    launch(getattr(broken_modes, broken), 2, data, tmp_path / "out", caught_by)
    for case in caught_by:
        assert compare(load(single, case), load(tmp_path / "out", case), case), f"{broken} passed {case}"
