"""A run that is replaced stays until its successor is finished, and a run never replaces what it reads.

python -m pytest tests/checkpoints/test_run_folder.py
"""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from app.checkpoints import run_files
from app.checkpoints.run_files import REPLACED, check_inputs, drop_replaced_run
from app.checkpoints.run_folder import open_run_folder
from app.config.schema import Config, DataConfig, DeepSpeedConfig, ModelConfig, OutputConfig
from app.errors import InputError
from app.run.entry import main
from app.strategies.single import Single
from tests.ranks import settings
from tests.tiny import write_tiny

OVERWRITE = OutputConfig(dir="run", overwrite=True)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def make_run(name: str = "first", finished: bool = True) -> None:
    """Write the files of a run into `run`, each with the run's name as its content."""
    for path in (
        "run_history.json",
        "train.log",
        "model.safetensors",
        "predictions.csv",
        "state/step-00000001/a",
    ):
        Path("run", path).parent.mkdir(parents=True, exist_ok=True)
        Path("run", path).write_text(name)
    if finished:
        Path("run/report.json").write_text(name)


def overwrite() -> None:
    open_run_folder(OVERWRITE)[2].release()


def test_the_run_stays_until_its_successor_is_finished():
    make_run("first")
    Path("run/notes.md").write_text("mine")
    overwrite()
    assert {path.name for path in Path("run").iterdir()} == {REPLACED, "notes.md"}
    assert Path("run", REPLACED, "state/step-00000001/a").read_text() == "first"
    # A successor that never finished is not worth keeping: the complete run is
    make_run("second", finished=False)
    overwrite()
    assert Path("run", REPLACED, "model.safetensors").read_text() == "first"
    make_run("third")
    overwrite()
    assert Path("run", REPLACED, "model.safetensors").read_text() == "third"
    drop_replaced_run(Path("run"))
    assert [path.name for path in Path("run").iterdir()] == ["notes.md"]


def test_a_start_that_was_killed_while_it_set_the_run_aside_is_repeated(monkeypatch):
    make_run()
    moved, rename = [], Path.rename

    def killed(path: Path, target: Path) -> Path:
        moved.append(path)
        if len(moved) > 3:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            overwrite()
    overwrite()
    names = {path.name for path in Path("run", REPLACED).iterdir()}
    assert names == {
        "run_history.json",
        "train.log",
        "model.safetensors",
        "predictions.csv",
        "state",
        "report.json",
    }
    assert [path.name for path in Path("run").iterdir()] == [REPLACED]


def test_a_folder_of_the_user_with_that_name_stays():
    make_run()
    Path("run", REPLACED).mkdir()
    Path("run", REPLACED, "notes.md").write_text("mine")
    with pytest.raises(InputError, match="is no run, and its name is needed; rename it"):
        overwrite()
    assert Path("run/model.safetensors").exists()
    run_files.remove_run(Path("run"))
    assert Path("run", REPLACED, "notes.md").read_text() == "mine"


def fail(*_) -> None:
    raise RuntimeError("the machine has failed")


INPUTS = {
    "data.train": Config(data=DataConfig(train="run/predictions.csv")),
    "data.test": Config(data=DataConfig(test="link.csv")),
    "data.relabel": Config(data=DataConfig(relabel="./run/../run/report.json")),
    "model.name": Config(model=ModelConfig(name="run")),
    "model.vocab_file": Config(model=ModelConfig(vocab_file=f"run/{REPLACED}/vocab.txt")),
    "deepspeed.config": Config(deepspeed=DeepSpeedConfig(config="run/state/step-00000001/a")),
}


@pytest.mark.parametrize("setting", INPUTS)
def test_what_a_run_reads_is_not_replaced(setting):
    make_run()
    Path("link.csv").symlink_to("run/predictions.csv")
    config = replace(INPUTS[setting], output=OVERWRITE)
    with pytest.raises(InputError, match=rf"replaces the run in run, and {setting} \(.*\) is part of it"):
        check_inputs(config)
    check_inputs(replace(config, output=OutputConfig(dir="run", resume="auto")))
    check_inputs(replace(config, output=OutputConfig(dir="elsewhere", overwrite=True)))


def test_a_file_of_the_user_beside_the_run_may_be_read():
    make_run()
    Path("run/mine.csv").write_text("text,label\n")
    check_inputs(Config(data=DataConfig(train="run/mine.csv"), output=OVERWRITE))


def test_a_run_that_fails_leaves_the_one_that_it_replaces(monkeypatch, capsys):
    """The model stays, whether it is to be read or only to be replaced."""
    data = [f"--data.train={write_tiny(Path('rows.tsv'), 20)}", "--data.cache_dir=cache"]
    first = settings(data, Path("run"), train__max_steps=1)
    assert main("single", "", first) == 0
    model, predictions = (Path("run", name).read_bytes() for name in ("model.safetensors", "predictions.csv"))
    again = [*first, "--output.overwrite=true", "--output.resume=never"]
    assert main("single", "", [*again, "--model.name=run"]) == 2
    assert main("single", "", [*again, "--data.train=run/predictions.csv"]) == 2
    assert capsys.readouterr().err.count("replaces the run in run") == 2
    assert Path("run/predictions.csv").read_bytes() == predictions
    with monkeypatch.context() as patch:
        patch.setattr(Single, "unscale", fail)
        with pytest.raises(RuntimeError, match="the machine has failed"):
            main("single", "", again)
    assert Path("run", REPLACED, "model.safetensors").read_bytes() == model
    shutil.rmtree("cache")
    assert main("single", "", again) == 0
    assert not Path("run", REPLACED).exists()
    assert Path("run/model.safetensors").read_bytes() == model
