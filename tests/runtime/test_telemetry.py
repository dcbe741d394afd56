"""Libraries that report to their makers: python -m pytest tests/runtime/test_telemetry.py

That ONNX Runtime then leaves no id of the machine is in tests/export/test_export.py.
"""

import os

from app.runtime.telemetry import SWITCHES, turn_off_telemetry


def test_telemetry_is_off_unless_the_user_wants_it(monkeypatch):
    for name in SWITCHES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "false")
    turn_off_telemetry()
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "false"
