"""Trains BERT-family classifiers on Chinese text; `docs/architecture.md` shows the way of the data."""

import logging

# Where DeepSpeed is installed, transformers imports it, and it writes its warnings to standard output, among reports and
# predictions. Its errors are raised as exceptions all the same.
logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)
