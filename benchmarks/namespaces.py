"""Two network namespaces joined by one link of limited bandwidth: two machines and a cable, as far as
processes can tell.

A namespace has its own interfaces, addresses and ports. `tc tbf`, a token bucket on each end of the link,
holds its rate. No delay is added: a gradient of tens of megabytes takes a second or so, beside which the 0.2
ms of a local network do not show, and many kernels come without `netem`, which would add it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

BURST = (
    # What may pass at once: two of the largest packets, so that the rate holds from the first millisecond on
    "128kb"
)


class Unavailable(Exception):
    """This machine cannot make namespaces; the text says why."""


@dataclass(frozen=True)
class Host:
    """One end of the link: `command` starts a program there when put before it, `interface` is its end of the
    cable."""

    command: list[str]
    interface: str


@contextmanager
def linked_namespaces(rate: str) -> Iterator[list[Host]]:
    """Yield two hosts joined by a link of `rate` ("200mbit") each way; take all of it away again. Raises
    Unavailable."""
    if not sys.platform.startswith("linux"):
        raise Unavailable(f"network namespaces are there on Linux only, this is {sys.platform}")
    if os.geteuid() != 0:
        raise Unavailable("network namespaces need root, and this is user id " + str(os.geteuid()))
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            raise Unavailable(f"there is no `{program}` here (apt-get install iproute2)")
    names = [f"sync{os.getpid()}{end}" for end in "ab"]
    try:
        for name in names:
            call("ip", "netns", "add", name)
        call(
            "ip",
            "link",
            "add",
            "cable0",
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "cable1",
            "netns",
            names[1],
        )
        for index, name in enumerate(names):
            interface = f"cable{index}"
            call("ip", "-n", name, "address", "add", f"10.77.0.{index + 1}/24", "dev", interface)
            call("ip", "-n", name, "link", "set", "lo", "up")
            call("ip", "-n", name, "link", "set", interface, "up")
            bucket = ("tbf", "rate", rate, "burst", BURST, "latency", "100ms")
            call("tc", "-n", name, "qdisc", "add", "dev", interface, "root", *bucket)
        yield [Host(["ip", "netns", "exec", name], f"cable{index}") for index, name in enumerate(names)]
    finally:
        # Its end of the cable goes with a namespace
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def call(*command: str) -> None:
    """Run a command of iproute2; raise Unavailable with what it said."""
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise Unavailable(f"`{' '.join(command)}` failed: {result.stderr.strip()}")
