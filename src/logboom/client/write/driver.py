"""A writer's socket, driven by whoever waits: no event loop, and no thread between a caller and its answer.

The caller's thread encodes and sends. Who waits, for an answer, for room or for a flush, also receives: one thread at a
time, the others wait for it. A daemon thread does what is due when nobody waits: what lingers, answers for callbacks,
another connection, a ping. It is woken only when there is something to look after, and keeps its hands off the socket
while callers drive it themselves.

One lock guards everything. Nobody outside is ever called while it is held.
"""

from __future__ import annotations

import select
import socket
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Condition, Event, Lock, Thread, get_ident
from typing import Any, Final

from logboom.batch.header import Buffer
from logboom.client.link.address import Address
from logboom.client.link.async_link import CONNECT_TIMEOUT_S, describe_loss, no_connection
from logboom.client.link.blocking_link import open_socket
from logboom.client.write.ledger import Losses, OnError, Results, tell
from logboom.client.write.writer_core import WriterCore
from logboom.errors import ConnectionLost, LogboomError

TICK_MIN_S: Final = 0.001
TICK_MAX_S: Final = 0.25
TELL_MAX_S: Final = 0.01
"""Whoever tells results may be a callback's thread that waits for another."""
HANDS_OFF_S: Final = 0.02
"""So long after a caller has driven the socket the daemon thread only looks at the clock."""
_BUFFERS_MAX: Final = 512


class Driver:
    def __init__(self, core: WriterCore, servers: Sequence[Address], on_error: OnError | None) -> None:
        self.core = core
        self.lock = Lock()
        self._servers = servers
        self._on_error = on_error
        self._changed = Condition(self.lock)
        self._followers = 0
        """Threads that wait for the one that drives."""
        self._is_driven = False
        """Whether a thread polls the socket: nobody else receives what it waits for."""
        self._telling: list[int] = []
        """Threads that tell results they have taken."""
        self._driven_at = 0.0
        self._socket: socket.socket | None = None
        self._pollers: tuple[Any, Any] | None = None
        """To receive; to receive or send."""
        self._unsent: list[Buffer] = []
        self._is_connecting = False
        self._wake = Event()
        self._is_dozing = False
        self.is_closed = False

    def start(self) -> None:
        """From now on somebody looks after what nobody waits for."""
        Thread(target=_tend, args=(weakref.ref(self), self._wake), name="logboom-writer", daemon=True).start()

    def step(self, now: float, readable: bool = False) -> None:
        """With the lock: receive, do what is due, send."""
        core = self.core
        try:
            if readable and self._socket is not None and not self._is_driven:
                self._receive(now)
            core.turn(now)
            while self._socket is not None and not self.is_sent:
                self._send()
                if self._unsent or core.options.acks != "none":
                    break
                core.turn(now)  # no answer will come to say that there is room for more
        except (OSError, LogboomError) as error:
            self._lose(error, now)
        if self._is_dozing and not (core.is_idle and self.is_sent):
            self._is_dozing = False
            self._wake.set()

    def push(self, now: float) -> None:
        """With the lock: send what was added, and take what answers there are. The daemon thread need not."""
        self._driven_at = now
        self.step(now, readable=self.core.is_busy)

    def drive(self, is_done: Callable[[], bool], deadline: float | None = None, hasten: bool = False) -> bool:
        """Without the lock: until it is done, or time is up. Whether it is done. `hasten`: nothing lingers."""
        polled, readable = False, deadline is not None and self.core.is_busy
        while True:
            with self.lock:
                self._driven_at = now = time.monotonic()
                if polled:
                    self._end_turn()
                if not hasten or self.core.hasten() or not self.is_sent:
                    self.step(now, readable)
                news = self._take()
                if news is None:
                    # What this one waits for may have been received and told by another thread.
                    if is_done():
                        return True
                    if (deadline is not None and now >= deadline) or (self.is_closed and self.is_told):
                        return False
                    pause_s = self._pause_s(now, deadline)
                    connects = self._begin_connecting(now)
                    polled = not connects and self._begin_turn(pause_s)
            hasten, readable = False, True
            if news is not None:
                polled = False
                self._tell(*news)
                with self.lock:  # else what another thread has just received would count as told
                    if is_done():
                        return True
            elif polled:
                readable = self._poll(pause_s)
            elif connects:
                self.connect()

    @property
    def is_told(self) -> bool:
        """With the lock: whether there is nothing to tell, and no other thread is telling anybody anything.

        A callback does not wait for other callbacks.
        """
        ledger = self.core.ledger
        return not ledger.results and not ledger.losses and (not self._telling or get_ident() in self._telling)

    @property
    def is_sent(self) -> bool:
        """Whether everything that was to be sent is with the operating system."""
        return not self._unsent and not self.core.outgoing

    def _pause_s(self, now: float, deadline: float | None) -> float:
        look = self.core.next_look(now)
        return max(0.0, (look if deadline is None else min(look, deadline)) - now)

    def _begin_turn(self, pause_s: float) -> bool:
        """With the lock: whether this thread is to poll the socket. Else another one does, or there is none."""
        if self._socket is None or self._is_driven or self._telling:
            self._followers += 1
            self._changed.wait(min(pause_s, TELL_MAX_S if self._telling else TICK_MAX_S))
            self._followers -= 1
            return False
        self._is_driven = True
        return True

    def _end_turn(self) -> None:
        self._is_driven = False
        if self._followers:
            self._changed.notify_all()

    def _poll(self, pause_s: float) -> bool:
        pollers = self._pollers
        try:
            return pollers is not None and bool(pollers[bool(self._unsent)].poll(pause_s * 1000))
        except BaseException:
            with self.lock:
                self._end_turn()
            raise

    def _take(self) -> tuple[Results, Losses] | None:
        """With the lock: what there is to tell."""
        ledger = self.core.ledger
        if not ledger.results and not ledger.losses:
            return None
        self._telling.append(get_ident())
        return ledger.take()

    def tell(self) -> None:
        """Without the lock: tell everybody what became of their records."""
        ledger = self.core.ledger
        if ledger.results or ledger.losses:
            with self.lock:
                news = self._take()
            if news is not None:
                self._tell(*news)

    def _tell(self, results: Results, losses: Losses) -> None:
        untold: LogboomError | None = None
        try:
            untold = tell(results, losses, self._on_error)
        finally:
            with self.lock:
                self._telling.remove(get_ident())
                if results or losses:
                    self.core.ledger.give_back(results, losses)
                if untold is not None:
                    self.core.give_up_on(untold)
                if self._followers:
                    self._changed.notify_all()

    def _begin_connecting(self, now: float) -> bool:
        """With the lock: whether this thread is to connect."""
        contact = self.core.contact
        if self._socket is not None or self._is_connecting or self.is_closed:
            return False
        self._is_connecting = contact.fatal is None and now >= contact.connect_at
        return self._is_connecting

    def connect(self) -> None:
        """Without the lock, after `_begin_connecting`: one attempt."""
        contact = self.core.contact
        address = self._servers[contact.server]
        failure: LogboomError | None = None
        try:
            sock = open_socket(address, CONNECT_TIMEOUT_S)
        except (OSError, UnicodeError) as error:
            failure = ConnectionLost(no_connection(address, error))
        except LogboomError as error:
            failure = error
        except BaseException:
            with self.lock:
                self._is_connecting = False
            raise
        with self.lock:
            self._is_connecting = False
            now = time.monotonic()
            if failure is not None:
                self.core.lost(failure, now)
            elif self.is_closed:
                sock.close()
            else:
                sock.setblocking(False)
                self._socket, self._pollers = sock, (_poller(sock, 0), _poller(sock, select.POLLOUT))
                self.core.connected(now, address.profile)
                self.step(now)
            self._changed.notify_all()

    def _send(self) -> None:
        core, sock = self.core, self._socket
        assert sock is not None
        while self._unsent or core.outgoing:
            if not self._unsent:
                self._unsent, core.outgoing = core.outgoing, []
            try:
                count = sock.sendmsg(self._unsent[:_BUFFERS_MAX])
            except BlockingIOError:
                return
            self._unsent = _behind(self._unsent, count)

    def _receive(self, now: float) -> None:
        core, sock = self.core, self._socket
        assert sock is not None
        while True:
            buffer = core.buffer()
            try:
                count = sock.recv_into(buffer)
            except BlockingIOError:
                return
            if not count:
                raise ConnectionLost(describe_loss(self._servers[core.contact.server], core.contact.session))
            core.received(count, now)
            if count < len(buffer):
                return

    def _lose(self, error: OSError | LogboomError, now: float) -> None:
        self.hang_up()
        if isinstance(error, OSError):
            contact = self.core.contact
            error = ConnectionLost(describe_loss(self._servers[contact.server], contact.session, error))
        self.core.lost(error, now)
        self._changed.notify_all()

    def part(self) -> None:
        """In the child of a fork: the connection is the parent's, and so is whoever held the lock."""
        self.lock = Lock()
        self._changed = Condition(self.lock)
        self.is_closed = True
        sock, self._socket, self._pollers, self._unsent = self._socket, None, None, []
        if sock is not None:
            sock.close()  # no shutdown: that would end it for the parent too

    def hang_up(self) -> None:
        """With the lock."""
        sock, self._socket, self._pollers, self._unsent = self._socket, None, None, []
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # wakes whoever polls it
            sock.close()

    def close(self) -> None:
        """With the lock: nothing is sent or received any more."""
        self.is_closed = True
        self.hang_up()
        self._changed.notify_all()
        self._wake.set()

    def __del__(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def tend(self) -> tuple[float, Any]:
        """Do what is due. How long to pause then, and what to poll meanwhile, if anything."""
        with self.lock:
            if self.is_closed:  # just now: nobody wakes this thread again
                return 0.0, None
            self._wake.clear()
            self._is_dozing = False
            now = time.monotonic()
            self.step(now, readable=now - self._driven_at >= HANDS_OFF_S)
            connects = self._begin_connecting(now)
        if connects:
            self.connect()
        self.tell()
        with self.lock:
            now = time.monotonic()
            pause_s = max(0.0, self.core.next_look(now) - now)
            if self.core.contact.fatal is not None:
                pause_s = 3600.0
            is_driven = now - self._driven_at < HANDS_OFF_S
            if self.core.is_idle and self.is_sent and not is_driven:
                self._is_dozing = True
                return pause_s, None
            tick_s = min(max(self.core.options.linger_ms / 1000, TICK_MIN_S), TICK_MAX_S)
            if is_driven and self.is_sent and not self.core.options.linger_ms:
                tick_s = HANDS_OFF_S  # nothing lingers: whoever drives has left nothing to be done
            pause_s = max(min(pause_s, tick_s), TICK_MIN_S)
            sock = self._socket
            if sock is None or is_driven:
                return pause_s, None
            return pause_s, _poller(sock, select.POLLOUT if self._unsent else 0)


def _tend(reference: weakref.ref[Driver], wake: Event) -> None:
    while True:
        driver = reference()
        if driver is None or driver.is_closed:
            return
        pause_s, poller = driver.tend()
        del driver
        if poller is None:
            wake.wait(pause_s)
        else:
            poller.poll(pause_s * 1000)


def _poller(sock: socket.socket, more: int) -> Any:
    poller = select.poll()
    poller.register(sock, select.POLLIN | more)
    return poller


def _behind(buffers: list[Buffer], count: int) -> list[Buffer]:
    """What is left of them after so many bytes."""
    for number, buffer in enumerate(buffers):
        if count < len(buffer):
            return [memoryview(buffer)[count:], *buffers[number + 1 :]]
        count -= len(buffer)
    return []
