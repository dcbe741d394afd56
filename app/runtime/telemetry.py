"""Libraries that report their use to their makers: not from here, unless the user's environment says so."""

import os

# ONNX Runtime reports sessions and graphs since 1.29, and keeps an id of the machine in ~/.cache (its
# Privacy.md says so); MLflow reports calls since 3.2
# (https://mlflow.org/docs/latest/community/usage-tracking).
SWITCHES = {"ORT_DISABLE_TELEMETRY": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}


def turn_off_telemetry() -> None:
    """Set the libraries' own environment variables; to be called before they are imported."""
    for name, value in SWITCHES.items():
        os.environ.setdefault(name, value)
