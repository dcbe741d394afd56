"""Where the verbs with a server listen, and the key that their requests must have."""

import argparse
import os
import re
from collections.abc import Callable

from ..errors import InputError
from .parser import number

KEY = "TEXT_CLASSIFIER_API_KEY"  # an argument would be seen in the list of processes
# A header of HTTP can have such a key
KEY_FORM = re.compile(r"[!-~]([ -~]*[!-~])?")
HOST_NAME = re.compile(r"[\w.-]+|[0-9A-Fa-f:.]+")


def read_api_key() -> str | None:
    """Return the key of the environment, None where it is not set. Raises InputError for one that no header
    can have."""
    api_key = os.environ.get(KEY)
    if api_key is not None and not KEY_FORM.fullmatch(api_key):
        raise InputError(
            f"{KEY} must be printable ASCII, without spaces around it; set another key, or unset it"
        )
    return api_key


def add_address(add: Callable) -> None:
    """Add the options that say where a server listens, and how it may be called."""
    add(
        "--host",
        default="127.0.0.1",
        help="address to listen on; 0.0.0.0 is all (default: 127.0.0.1, this machine only)",
    )
    add(
        "--port",
        type=number(int, 0, 65_535),
        default=8000,
        help="port to listen on; 0 is any free one (default: 8000)",
    )
    add(
        "--allowed_hosts",
        type=_host_names,
        default=[],
        metavar="NAME,NAME",
        help="other names of this server, for the header Host (default: localhost and --host only)",
    )


def _host_names(text: str) -> list[str]:
    """Return the names of an option; raises ArgumentTypeError for one that is no name of a host."""
    names = []
    for part in text.split(","):
        name = part.strip()
        if not HOST_NAME.fullmatch(name):
            raise argparse.ArgumentTypeError(
                f"names of hosts without a port are needed, separated by commas, found {name or 'nothing'}"
            )
        names.append(name)
    return names
