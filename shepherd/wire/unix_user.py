"""Whose process is at the other end of a unix socket: asked before a key, a password or an order goes over it.

A socket's mode keeps others from connecting to it, but not from putting one of their own in its place.
"""

from __future__ import annotations

import pwd
import socket
import struct
from typing import Final

_CREDENTIALS: Final = struct.Struct("iII")  # pid, uid, gid


def user_of_peer(connection: socket.socket) -> int:
    """The user that the other end was when it connected, or began to listen."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1])


def is_trusted(user: int, own: int) -> bool:
    """Whether a process of this user may know what we know: our own user may, and root, who can read it anyway."""
    return user in (own, 0)


def name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
