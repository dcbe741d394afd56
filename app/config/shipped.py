"""The files that the defaults need, in the repository and in an installed package."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
# pyproject.toml puts copies of the repository's files here when it builds a wheel.
INSTALLED = PACKAGE / "shipped"
ROOT = INSTALLED if INSTALLED.is_dir() else PACKAGE.parent

DEFAULT_CONFIG = ROOT / "configs" / "default.yaml"
SAMPLE_FOLDER = ROOT / "data" / "sample"
