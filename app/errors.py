"""The one error that a user, not a programmer, has to mend, and what its messages are made of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any


class InputError(ValueError):
    """Bad input: a file, a configuration or a checkpoint that breaks a rule.

    The message says the rule, what was found (with file and line where there is one) and the remedy. The entry
    scripts print it without a traceback and end with exit status 2.
    """


def nearest(name: Any, candidates: Iterable) -> str:
    """Return `; did you mean 'x'?` for the candidate most like `name`, or an empty string."""
    import difflib

    close = difflib.get_close_matches(str(name), [str(candidate) for candidate in candidates], n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""


def excerpt(value: Any, length: int = 40) -> str:
    """Return a short, printable form of `value` for an error message."""
    text = value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = re.sub("[\ud800-\udfff]", "\ufffd", text[:length]) + ("…" if len(text) > length else "")
    return repr(text) if isinstance(value, str) else text
