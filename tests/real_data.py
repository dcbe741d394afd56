"""The public data sets that the tests read: in the folder REAL_DATA, or in shared/data beside the
repository."""

import os
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
REAL_DATA = Path(os.environ.get("REAL_DATA") or SHARED).absolute()
REASON = f"needs the public data sets, which are not in {REAL_DATA}"
needs_real_data = pytest.mark.skipif(not REAL_DATA.is_dir(), reason=REASON)
