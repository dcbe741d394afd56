"""What the fork server of tests/ranks.py imports before it forks: all that a rank needs, and nothing that
starts a thread."""

from contextlib import suppress

import accelerate  # noqa: F401
import pydantic.dataclasses  # noqa: F401
import pytest  # noqa: F401
import sklearn.metrics  # noqa: F401
import torch.utils.tensorboard  # noqa: F401
import yaml  # noqa: F401
from transformers.models.bert import modeling_bert, tokenization_bert  # noqa: F401

import app.modes.library_modes  # noqa: F401

# transformers imports it where it is installed
with suppress(ImportError):
    import deepspeed  # noqa: F401
