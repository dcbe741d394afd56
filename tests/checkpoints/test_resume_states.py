"""Training states on disk: whole or absent, checked, kept."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from app.checkpoints import training_state
from app.checkpoints.job import MASKS, MASKS_BY_ROW
from app.checkpoints.progress import RunProgress
from app.checkpoints.resume import restore_best_model, state_to_resume
from app.checkpoints.run_files import HISTORY, saved_states, step_of_state
from app.checkpoints.run_folder import cannot_write
from app.checkpoints.training_state import (
    drop_states,
    load_training_state,
    save_training_state,
    share_weights,
    size_of_states,
)
from app.errors import InputError, TrainingError
from app.runtime.disk import checksum, whole_file
from tests.processes import full_disk

FILES = ("best.safetensors", "manifest.json", "optimizer.safetensors", "progress.json", "weights.safetensors")
JOB = {"train.seed": 1, "steps": 30}


def progress_of(step: int) -> RunProgress:
    counts = {"evaluations_without_improvement": 2, "micro_batch_size": 4, "best_step": step - 1}
    return RunProgress(step, step - 1, **counts, best_value=0.5, logged=[1.5, 4], scaler={"s": 2.0})


def save(folder: Path, step: int, job: dict = JOB) -> None:
    (folder / HISTORY).touch()
    model = folder / "model.safetensors"
    model.write_bytes(b"the best weights up to step %d" % step)
    weights = {"head.weight": torch.full((20, 30), float(step))}
    optimizer = {"head.weight/exp_avg": torch.full((20, 30), step / 2), "head.weight/step": torch.tensor(1.0)}
    save_training_state(folder, progress_of(step), job, weights, optimizer, model)


def state_of(folder: Path, step: int) -> Path:
    return folder / "state" / f"step-{step:08d}"


def steps(folder: Path) -> list[int]:
    return [step_of_state(state) for state in saved_states(folder)]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_state_comes_back_as_it_was_with_its_best_model(tmp_path):
    save(tmp_path, 7)
    state = load_training_state(tmp_path)
    assert (state.progress, state.job) == (progress_of(7), JOB)
    assert (state.weights["head.weight"] == 7).all()
    assert (state.optimizer["head.weight/exp_avg"] == 3.5).all()
    assert set(files(state.folder)) == set(FILES)
    checked = json.loads((state.folder / "manifest.json").read_text())["sha256"]
    assert set(checked) == set(FILES) - {"manifest.json"}
    # A run that was killed may have written a better model after its last state
    model = tmp_path / "model.safetensors"
    for _ in range(2):
        model.unlink()
        model.write_bytes(b"better")
        restore_best_model(state.folder, model, state.progress.best_step)
        assert model.read_bytes() == b"the best weights up to step 7"
    assert {path.name for path in tmp_path.iterdir()} == {HISTORY, "model.safetensors", "state"}


def test_a_run_of_random_weights_of_an_earlier_version_resumes(tmp_path):
    """Its job has null where it is called random now."""
    save(tmp_path, 7, JOB | {"model.name": None})
    assert state_to_resume(tmp_path, JOB | {"model.name": "random"}).progress == progress_of(7)
    other_job = JOB | {"model.name": {"path": "hfl/rbt3", "content": "hfl/rbt3 0123"}}
    with pytest.raises(InputError, match=r"model\.name was random and is hfl/rbt3"):
        state_to_resume(tmp_path, other_job)


def test_a_run_of_an_earlier_version_resumes_with_other_masks_of_dropout_and_says_so(tmp_path, caplog):
    caplog.set_level("INFO")
    message = "by a version that drew other masks of dropout"
    save(tmp_path, 7)
    assert state_to_resume(tmp_path, JOB | {MASKS: MASKS_BY_ROW}).progress == progress_of(7)
    assert message in caplog.text
    caplog.clear()
    save(tmp_path, 8, JOB | {MASKS: MASKS_BY_ROW})
    assert state_to_resume(tmp_path, JOB | {MASKS: MASKS_BY_ROW}).progress == progress_of(8)
    assert message not in caplog.text


def test_a_run_with_the_values_of_an_earlier_version_resumes(tmp_path):
    earlier = {"data.quoting": "none", "train.class_weights": "none"}
    save(tmp_path, 7, JOB | earlier)
    now = JOB | {"data.quoting": "never", "train.class_weights": None}
    assert state_to_resume(tmp_path, now).progress == progress_of(7)
    with pytest.raises(InputError, match=r"data\.quoting was never and is auto"):
        state_to_resume(tmp_path, now | {"data.quoting": "auto"})


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


DAMAGES = {
    "a bit flipped": flip_a_bit,
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
    "a number": lambda path: path.write_bytes(b"5"),
    "no keys": lambda path: path.write_bytes(b"{}"),
    "no checksums": lambda path: path.write_bytes(b'{"format": 5, "sha256": {}}'),
    "wrong types": lambda path: path.write_bytes(b'{"format": 5, "sha256": [1]}'),
    "too deep": lambda path: path.write_bytes(b"[" * 200_000),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_skipped_and_takes_no_whole_ones_place(tmp_path, caplog, name, damage):
    """After damage to the newest state, a job that is interrupted again and again still gets further."""
    assert load_training_state(tmp_path) is None
    assert not caplog.text
    for step in (5, 10):
        save(tmp_path, step)
    DAMAGES[damage](state_of(tmp_path, 10) / name)
    assert load_training_state(tmp_path).progress.step == 5
    assert "step-00000010 is damaged and is skipped: " in caplog.text
    for step, expected_steps in ((7, [7, 5]), (15, [15, 7])):
        save(tmp_path, step)
        assert steps(tmp_path) == expected_steps
    flip_a_bit(state_of(tmp_path, 15) / "weights.safetensors")
    assert load_training_state(tmp_path).progress.step == 7
    for step, expected_steps in ((20, [20, 7]), (25, [25, 20])):
        save(tmp_path, step)
        assert steps(tmp_path) == expected_steps
    damaged = sorted(path.name for path in (tmp_path / "state").glob("damaged-*"))
    assert damaged == ["damaged-step-00000010", "damaged-step-00000015"]
    drop_states(tmp_path, 1)
    assert not list((tmp_path / "state").glob("damaged-*")), "a finished run keeps none"
    flip_a_bit(state_of(tmp_path, 25) / "weights.safetensors")
    assert load_training_state(tmp_path) is None
    assert f"{tmp_path} has no undamaged training state" in caplog.text


def test_a_state_of_another_version_is_refused_and_stays(tmp_path):
    save(tmp_path, 7)
    manifest = state_of(tmp_path, 7) / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 4}))
    with pytest.raises(TrainingError, match="of format 5 is needed, found 4, of another version"):
        load_training_state(tmp_path)
    assert steps(tmp_path) == [7]


def test_a_state_that_cannot_be_read_now_is_neither_renamed_nor_removed(tmp_path, monkeypatch, caplog):
    """Too many open files, or a file server that does not answer, is no damage."""
    save(tmp_path, 5)
    save(tmp_path, 10)
    full = OSError(24, "Too many open files")
    away = SafetensorError("Error while reading: Input/output error (os error 5)")

    def refuse(error: Exception, part: str):
        def read(path):
            if part in str(path):
                raise error
            return checksum(path)

        monkeypatch.setattr(training_state, "checksum", read)

    refuse(full, "step-")
    with pytest.raises(TrainingError, match="step-00000010: .*Too many open files; it is not removed; start"):
        load_training_state(tmp_path)
    assert "step-00000010 cannot be read now and is skipped: [Errno 24] Too many open files" in caplog.text
    refuse(away, "step-00000010")
    assert load_training_state(tmp_path).progress.step == 5, "the one before is used"
    monkeypatch.undo()
    assert steps(tmp_path) == [10, 5]
    assert load_training_state(tmp_path).progress.step == 10


def test_a_full_disk_leaves_the_state_before_alone(tmp_path):
    save(tmp_path, 5)
    before = files(state_of(tmp_path, 5))
    with full_disk(), pytest.raises((OSError, SafetensorError)) as caught:
        save(tmp_path, 10)
    message = "the training state of step 5 is kept; free space on the disk and resume with --resume auto"
    assert message in str(cannot_write(caught.value, tmp_path))
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["step-00000005"]
    assert files(state_of(tmp_path, 5)) == before


def test_what_a_killed_process_left_is_removed_and_other_files_stay(tmp_path):
    left = tmp_path / "state" / ".step-00000003"
    left.mkdir(parents=True)
    (left / "weights.safetensors").write_bytes(b"half")
    (left / "../notes.md").write_text("mine")
    assert load_training_state(tmp_path) is None
    save(tmp_path, 5)
    assert {path.name for path in (tmp_path / "state").iterdir()} == {"notes.md", "step-00000005"}
    drop_states(tmp_path, 0)
    assert set(files(tmp_path / "state")) == {"notes.md"}


def size_of_files(folder: Path, *names: str) -> int:
    return sum((folder / name).stat().st_size for name in names)


def test_a_finished_run_has_the_weights_of_its_model_on_the_disk_once(tmp_path):
    """Also where a process was killed while it made the link."""
    save(tmp_path, 5)
    state = state_of(tmp_path, 5)
    model = tmp_path / "model.safetensors"
    before = files(state)
    assert size_of_states(tmp_path) == size_of_files(state, *FILES)
    (state / ".best.safetensors").write_bytes(b"half")
    share_weights(tmp_path)
    share_weights(tmp_path)
    assert files(state) == before
    assert (state / "best.safetensors").samefile(model)
    others = [name for name in FILES if name != "best.safetensors"]
    assert size_of_states(tmp_path) == size_of_files(state, *others)
    # A better model is a new file
    with whole_file(model) as file:
        file.write(b"better")
    assert files(load_training_state(tmp_path).folder) == before
    share_weights(tmp_path)
    assert not (state / "best.safetensors").samefile(model), "they differ"


def test_the_last_weights_are_on_the_disk_once_where_they_are_the_best(tmp_path):
    save(tmp_path, 5)
    weights = load_training_state(tmp_path).weights
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    share_weights(tmp_path)
    names = {path.name for path in state_of(tmp_path, 5).iterdir() if path.stat().st_nlink == 2}
    assert names == {"weights.safetensors"}
    assert load_training_state(tmp_path).progress.step == 5


def test_where_there_are_no_links_the_copy_stays(tmp_path, monkeypatch):
    def refuse(*names) -> None:
        raise OSError(95, "Operation not supported")

    save(tmp_path, 5)
    before = files(state_of(tmp_path, 5))
    monkeypatch.setattr("os.link", refuse)
    share_weights(tmp_path)
    assert files(state_of(tmp_path, 5)) == before
