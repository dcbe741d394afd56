"""Public data sets: what is known of them, and where their files are on this machine."""

import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import yaml

from ..errors import InputError, nearest
from .schema import Config
from .shipped import PROGRAM

MANIFEST = Path(__file__).with_suffix(".yaml")
# A file of a public set in a setting is written public:NAME/FILE
PREFIX = "public:"


@dataclass(frozen=True)
class PublicFile:
    """A file of a set: its name, its size in bytes, its SHA-256, and the addresses that have it."""

    name: str
    size: int
    sha256: str
    urls: tuple[str, ...]


@dataclass(frozen=True)
class PublicSet:
    """A public data set; `licence` is what its origin says."""

    name: str
    title: str
    origin: str
    licence: str
    files: tuple[PublicFile, ...]


@cache
def public_sets() -> dict[str, PublicSet]:
    """Return every public set by its name."""
    manifest = yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))

    def urls(place: str) -> tuple[str, ...]:
        repository, _, rest = place.partition("@")
        commit, _, path = rest.partition("/")
        return tuple(
            url.format(repository=repository, commit=commit, path=path) for url in manifest["mirrors"]
        )

    def files(known: dict) -> tuple[PublicFile, ...]:
        return tuple(
            PublicFile(name, f["bytes"], f["sha256"], urls(f["github"])) for name, f in known.items()
        )

    return {
        name: PublicSet(name, known["title"], known["origin"], known["licence"], files(known["files"]))
        for name, known in manifest["sets"].items()
    }


def find_set(name: str) -> PublicSet:
    """Return a public set; raises InputError, with the nearest name, for an unknown one."""
    sets = public_sets()
    if name not in sets:
        near = nearest(name, sets) or f" (known: {', '.join(sets)})"
        raise InputError(f"there is no public data set '{name}'{near}")
    return sets[name]


def fetched_folder() -> Path:
    """Return the folder into which sets are fetched, one folder for each; it may be absent."""
    cache_home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache_home) / "chinese-text-classification" / "data"


def find_file(setting: str) -> Path:
    """Return where `fetch` puts `public:NAME/FILE`; raises InputError for an unknown set or file."""
    name, _, file = setting.removeprefix(PREFIX).partition("/")
    names = [known.name for known in find_set(name).files]
    if file not in names:
        raise InputError(f"the public data set {name} has no file '{file}'; it has {', '.join(names)}")
    return fetched_folder() / name / file


def fetch_hint(path: Path) -> str:
    """Return how to get a missing file of a public set, as the end of a message; nothing for other files."""
    if path.parent.parent != fetched_folder() or path.parent.name not in public_sets():
        return ""
    # The configurations of the sets need it too
    vocabulary = "" if path.parent.name == "vocab" else " vocab"
    return f"; get it with {PROGRAM} fetch {path.parent.name}{vocabulary}"


def with_public_files(config: Config) -> Config:
    """Return the configuration with each `public:NAME/FILE` replaced by the path of that file."""

    def path_of(setting: str | list[str] | None) -> str | list[str] | None:
        if isinstance(setting, list):
            return [path_of(entry) for entry in setting]
        return str(find_file(setting)) if setting is not None and setting.startswith(PREFIX) else setting

    files = {key: path_of(getattr(config.data, key)) for key in ("train", "dev", "test")}
    model = replace(config.model, vocab_file=path_of(config.model.vocab_file))
    return replace(config, data=replace(config.data, **files), model=model)
