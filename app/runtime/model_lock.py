"""One lock in a process around building, loading and fitting models."""

import threading

# Two threads that build models at once would give wrong ones: transformers' switch that leaves weights
# uninitialised, its verbosity, and torch's random generator belong to the whole process. `fit` also loads, so
# the same thread may take it again.
MODEL_LOCK = threading.RLock()
