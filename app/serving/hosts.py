"""Which values of the Host header are answered. By DNS rebinding the page of any web site could read what
this server answers; such requests have the name of that site, and are refused."""

import re
from ipaddress import ip_address

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
# Listening there, the server has every address of the machine
ALL_ADDRESSES = ("", "0.0.0.0", "::")
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]@/]*)(:[0-9]*)?")


def allowed_hosts(listens_on: str, more: list[str]) -> frozenset[str]:
    """Return the allowed hosts: this machine's own names, the address it listens on, and `more`."""
    return LOCAL_HOSTS | {listens_on.lower(), *(name.lower() for name in more)}


def is_allowed(header: str, allowed: frozenset[str]) -> bool:
    """Return whether a request with this Host header, `name` or `name:port`, may be answered. A server that
    listens on all addresses answers to each of them: DNS rebinding needs a name."""
    match = HOST.fullmatch(header.strip().lower())
    if match is None:
        return False
    name = match[1].strip("[]")
    return name in allowed - {""} or (not allowed.isdisjoint(ALL_ADDRESSES) and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
