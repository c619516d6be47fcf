"""A connection with TLS, driven like a plain socket, blocking or not.

OpenSSL on a socket of its own asks the system twice for each record of 16 KiB, and gives each back alone. Here much is
received at once, into the caller's own buffer, and decrypted in memory. A connection has no buffer of its own for that,
but OpenSSL keeps the memory of the largest piece that it was given: a quarter of a megabyte in each direction at most.
Nothing that has come whole is held back, so whoever polls the descriptor misses nothing, as long as he reads until his
buffer is not filled.

Whatever else a socket can do would send or receive in the clear, and is refused.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from logboom.batch.header import Buffer

RECEIVE_BYTES: Final = 256 * 1024
RECEIVE_BYTES_MIN: Final = 32 * 1024
"""More than the largest record: into a smaller buffer nothing is received."""
SEND_BYTES: Final = 256 * 1024
"""Encrypted at once, before the system has taken any of it."""
JOIN_BYTES: Final = 64 * 1024
"""Smaller buffers than this are sent together."""
_NOTHING: Final = memoryview(b"")


class TlsSocket(socket.socket):
    """What it cannot do yet raises BlockingIOError, or TimeoutError in time, as a plain socket does."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        """Takes the descriptor over. With the handshake done, within the socket's timeout. Raises OSError."""
        timeout_s = sock.gettimeout()
        super().__init__(sock.family, sock.type, sock.proto, sock.detach())
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._unsent = _NOTHING
        """Encrypted, and not with the system yet."""
        self._taken = 0
        """Bytes of the caller's that this is, who has not been told so."""
        self._has_more = True
        """Whether whole records may have come that the last buffer had no room for, or that came with the handshake."""
        self._has_ended = False
        try:
            self.settimeout(timeout_s)
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
            self._shake_hands()
        except BaseException:
            self.close()
            raise

    def _shake_hands(self) -> None:
        timeout_s = self.gettimeout()
        room = memoryview(bytearray(RECEIVE_BYTES_MIN))
        deadline = _deadline(timeout_s)
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._receive(room, deadline)
                if self._has_ended:
                    self._incoming.write_eof()
            except ssl.SSLError:
                self._mention()
                raise
            else:
                self._flush()
                self.settimeout(timeout_s)
                return

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """How many bytes have come; 0 at the end, however it came."""
        view = memoryview(buffer)
        count = self._decrypt(view) if self._has_more else 0
        if count or self._has_ended:
            return count
        timeout_s = self.gettimeout()
        deadline = _deadline(timeout_s)
        try:
            while not count and not self._has_ended:
                self._receive(view, deadline)
                count = self._decrypt(view)
        finally:
            if deadline is not None:
                self.settimeout(timeout_s)
        return count

    def _receive(self, view: memoryview, deadline: float | None) -> None:
        """What was encrypted, through memory that is to hold what becomes of it."""
        if deadline is not None:
            rest_s = deadline - monotonic()
            if rest_s <= 0:
                raise TimeoutError("timed out")
            self.settimeout(rest_s)
        room = view[:RECEIVE_BYTES] if len(view) >= RECEIVE_BYTES_MIN else memoryview(bytearray(RECEIVE_BYTES_MIN))
        count = super().recv_into(room)
        self._incoming.write(room[:count])
        self._has_ended = not count

    def _decrypt(self, view: memoryview) -> int:
        """What there is of whole records."""
        tls, incoming = self._tls, self._incoming
        read: Any = tls.read
        count, size = 0, len(view)
        try:
            while count < size and (incoming.pending or tls.pending()):
                got = read(size - count, view[count:])  # of one record
                count += got
                if not got:
                    self._has_ended = True
                    break
        except ssl.SSLWantReadError:
            pass  # the rest of a record is still to come
        except ssl.SSLError:
            self._mention()
            raise
        self._has_more = count == size
        if self._outgoing.pending:
            self._mention()  # new keys; what is sent next comes after them in any case
        return count

    def sendmsg(self, buffers: Iterable[Any], *arguments: Any) -> int:
        """As many bytes as it took. After BlockingIOError it must be given the same again, or more of it."""
        if not self._taken:
            self._taken = self._tls.write(_front(list(buffers)))
        self._flush()
        taken, self._taken = self._taken, 0
        return taken

    def sendall(self, data: Any, flags: int = 0) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self.sendmsg([rest]) :]

    def _flush(self, flags: int = 0) -> None:
        """Send what was encrypted. What the system does not take is kept, and goes first the next time."""
        while self._unsent or self._outgoing.pending:
            if not self._unsent:
                self._unsent = memoryview(self._outgoing.read())
            self._unsent = self._unsent[super().send(self._unsent, flags) :]

    def _mention(self) -> None:
        """What OpenSSL has to say by itself, to a peer that may not listen any more."""
        with suppress(OSError):
            self._flush(socket.MSG_DONTWAIT)

    def shutdown(self, how: int) -> None:
        with suppress(ssl.SSLError):
            self._tls.unwrap()  # it wants an answer, for which nobody waits
        self._mention()
        super().shutdown(how)

    def _refuse(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError("that would pass TLS by")

    send = sendto = sendfile = recv = recvfrom = recvfrom_into = recvmsg = recvmsg_into = makefile = dup = _refuse


def _deadline(timeout_s: float | None) -> float | None:
    return monotonic() + timeout_s if timeout_s else None


def _front(buffers: Sequence[Buffer]) -> Buffer:
    """The first of them, together with those that follow as long as they are small."""
    first = memoryview(buffers[0])
    if len(buffers) == 1 or first.nbytes >= JOIN_BYTES:
        return first[:SEND_BYTES]
    joined, size = [], 0
    for buffer in buffers:
        size += memoryview(buffer).nbytes
        joined.append(buffer)
        if size >= JOIN_BYTES:
            break
    return b"".join(joined)
