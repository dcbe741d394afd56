"""Addresses of data files on object stores, such as s3://bucket/posts.parquet."""

import re

from ..errors import InputError

SCHEME = re.compile(r"[a-z][a-z0-9+.-]+://")


def is_address(name: str) -> bool:
    """Return whether a data file is named by an address, which fsspec opens, and not by a path."""
    return SCHEME.match(name) is not None


def check_address(key: str, name: str) -> None:
    """Raise InputError, without the address, where it holds credentials, which logs would keep."""
    scheme, _, rest = name.partition("://")
    if is_address(name) and ("@" in rest.partition("/")[0] or ("?" in rest and scheme in ("http", "https"))):
        raise InputError(
            f"{key}: an address must have no user:password@ and, of a web server, nothing after ? (a "
            f"signature), found such a {scheme}:// address; give credentials in the environment, as "
            "docs/data.md says"
        )
