"""Which addresses are this machine's own, as its kernel has it at that moment: addresses come and go while a reaper works."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Final

_ANY_PORT: Final = 9  # nothing is sent to it


def is_own(address: str) -> bool:
    """Whether packets to this address would come back to this machine: then the kernel would send them from there, too.

    So addresses count that no interface lists, but that a route brings here. Connecting a datagram socket sends nothing.
    """
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, _ANY_PORT))
            source = str(probe.getsockname()[0])
    except OSError:
        return False  # without a route there is nobody to be contacted
    return ip_address(source) == ip_address(address)
