"""`python -m app fetch`: python -m pytest tests/commands/test_fetch_verb.py"""

import hashlib
import re
from pathlib import Path

import pytest

from app.commands import main
from app.config import public_sets
from app.config.command_line import load_config
from app.config.public_sets import MANIFEST, PublicFile, PublicSet, fetched_folder, find_file
from app.data.dataset import open_dataset
from app.errors import InputError
from tests.real_data import REAL_DATA, needs_real_data
from tests.tiny import tiny_lines

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tiny_set(tmp_path, monkeypatch) -> Path:
    """A folder with the only data set there is, and an empty place to fetch it into."""
    content = "\n".join(tiny_lines(20)).encode()
    known = PublicFile(
        "train.tsv", len(content), hashlib.sha256(content).hexdigest(), ("http://127.0.0.1:1/x",)
    )
    sets = {"tiny": PublicSet("tiny", "sixty rows", "nowhere", "none", (known,))}
    monkeypatch.setattr(public_sets, "public_sets", lambda: sets)
    monkeypatch.setattr("app.commands.fetch.public_sets", lambda: sets)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "usb" / "tiny").mkdir(parents=True)
    (tmp_path / "usb" / "tiny" / "train.tsv").write_bytes(content)
    return tmp_path / "usb"


def test_what_is_fetched_is_what_a_configuration_finds(tiny_set, tmp_path, capsys):
    config = load_config(
        ["--data.train", "public:tiny/train.tsv", "--data.cache_dir", str(tmp_path / "cache")]
    )
    assert config.data.train == str(fetched_folder() / "tiny" / "train.tsv")
    with pytest.raises(InputError, match="there is no such file; get it with python -m app fetch tiny"):
        open_dataset(config.data)
    assert main(["fetch", "--list"]) == 0
    assert re.search(
        r"tiny +0.0 MB +- +sixty rows\n +origin: nowhere; licence: none", capsys.readouterr().out
    )
    assert main(["fetch", "tiny", "--from", str(tiny_set)]) == 0
    assert "tiny: sixty rows; nowhere; licence: none" in capsys.readouterr().out
    assert len(open_dataset(config.data).splits["train"]) == 48
    assert main(["fetch", "all", "--list"]) == 0
    assert "here" in (out := capsys.readouterr().out)
    assert "(was here)" in out


def test_errors_have_their_status(tiny_set, capsys):
    for argv, status, message in [
        (["tiny", "--timeout", "30"], 1, "no mirror has train.tsv"),
        (["tinny"], 2, "there is no public data set 'tinny'; did you mean 'tiny'?"),
        ([], 2, "name a data set to fetch"),
        (["tiny", "--timeout", "0"], 2, "--timeout must be above 0 seconds, found 0"),
        (["tiny", "--from", "nowhere"], 2, "nowhere/tiny/train.tsv is needed, and is not there"),
    ]:
        assert main(["fetch", *argv]) == status
        assert message in capsys.readouterr().err
    for setting, problem in (
        ("public:tiny/dev.tsv", "has no file 'dev.tsv'; it has train.tsv"),
        ("public:x", "no public data"),
    ):
        with pytest.raises(InputError, match=problem):
            load_config(["--data.train", setting])


def test_the_manifest_is_complete_and_the_configurations_use_it():
    sets = public_sets.public_sets()
    assert len(sets) == 7
    for known in sets.values():
        assert all((known.title, known.origin, known.licence, known.files))
        for file in known.files:
            assert re.fullmatch("[0-9a-f]{64}", file.sha256)
            assert file.size > 1000
            assert len(set(file.urls)) >= 3
            assert all(url.startswith("https://") and "{" not in url for url in file.urls)
    assert re.findall(r"github: (?!\S+/\S+@[0-9a-f]{40}/\S+$).*", MANIFEST.read_text(), re.MULTILINE) == []
    used = re.findall(
        r"public:\S+", "".join(path.read_text(encoding="utf-8") for path in (ROOT / "configs").glob("*.yaml"))
    )
    assert {setting.removeprefix("public:").split("/")[0] for setting in used} == set(sets)
    assert all(find_file(setting) for setting in used)


@needs_real_data
def test_the_real_files_are_those_of_the_manifest():
    for known in public_sets.public_sets().values():
        for file in known.files:
            content = (REAL_DATA / known.name / file.name).read_bytes()
            assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size, file.sha256)
