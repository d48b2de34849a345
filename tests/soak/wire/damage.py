"""Faults of the network between the drivers and the brokers, one at a time."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from soak.evidence import clock
from soak.faults import FaultJournal, FaultKind
from soak.hazards import Inflict
from soak.wire.fields import COVERED, NOT_FOUND, field_at, spans
from soak.wire.proxy import Direction, Frame, FramingProxy, Link, Strike

from headrace.kafka.wire.protocol import api_name

_AWAITED_S = 3.0
"""Longest wait for a frame of the drawn API key.

Then all connections of the proxy are cut. If none is sent after that, the next frame is taken.
"""
DELAYED_S, REPLACED_S = (1, 15), (4, 25)
_KEYS_ON_WHICH_RECORDS_DEPEND = frozenset({0, 1, 2, 8, 9})
_ANYWHERE = 0.25
"""Share of the flips at any bit of a frame; the others are in a field that no checksum covers."""

Sending = Callable[[random.Random, Link, Frame], str]
"""Function that damages a frame, and returns what it did."""


@dataclass(frozen=True)
class Damage:
    """A damage of one frame."""

    at_s: float
    """Unix seconds."""
    side: str
    api: str
    direction: Direction
    field: str
    """Field with the flipped bit; empty for other damage."""
    text: str

    @property
    def may_stay_unnoticed(self) -> bool:
        """Return whether docs/faults.md lists the field as not found."""
        leaf = self.field.rpartition(".")[2]
        return leaf in NOT_FOUND.get((self.api, self.direction), ())

    def __str__(self) -> str:
        return f"{clock(self.at_s)} {self.text}"


class WireSide(NamedTuple):
    """The brokers of one cluster, as the drivers reach them."""

    name: str
    proxies: list[FramingProxy]
    true_ports: dict[str, int]
    """Port of each proxy's own broker, by the proxy's name."""
    foreign_ports: dict[str, int]
    """Port of the foreign broker that knows the proxy's address as its own."""


class _Blow(NamedTuple):
    """A kind of damage, in one direction."""

    kind: FaultKind
    sending: Sending
    direction: Direction


class WireFaults:
    """Faults of both sides."""

    def __init__(
        self, sides: Sequence[WireSide], journal: FaultJournal, say: Callable[[str], None]
    ) -> None:
        """Prepare the faults; ``say`` prints what was done to which frame."""
        self._sides, self._journal, self._say = sides, journal, say
        self.damages: list[Damage] = []

    def deck(self) -> list[tuple[FaultKind, Inflict]]:
        """Return each fault for each side and direction; flips occur more often than others."""
        deck: list[tuple[FaultKind, Inflict]] = []
        for side in self._sides:
            deck.append((FaultKind.BROKER_REPLACED, partial(self._replace, side)))
            for direction in Direction:
                for kind, sending, times in (
                    (FaultKind.BIT_FLIPPED, _flip, 6),
                    (FaultKind.FRAME_DELAYED, _delay, 1),
                    (FaultKind.CONNECTION_CUT, _cut, 1),
                    (FaultKind.FRAME_DOUBLED, _double, 2),
                    (FaultKind.FRAMES_SWAPPED, _swap, 2),
                    (FaultKind.CONNECTION_SWALLOWED, _swallow, 1),
                ):
                    strike = partial(self._strike, _Blow(kind, sending, direction), side)
                    deck += [(kind, strike)] * times
        return deck

    def _strike(
        self,
        blow: _Blow,
        side: WireSide,
        chance: random.Random,
        stop: threading.Event,
    ) -> None:
        proxy = chance.choice(side.proxies)
        keys = sorted({key for seen, key in proxy.seen if seen is blow.direction})
        important = [key for key in keys if key in _KEYS_ON_WHICH_RECORDS_DEPEND]
        key = chance.choice(important if important and chance.random() < 0.6 else keys or [-1])

        def inflict(link: Link, frame: Frame) -> None:
            field = ""
            try:
                done = blow.sending(chance, link, frame)
                if blow.kind is FaultKind.BIT_FLIPPED:
                    field = done.split()[0]
            except OSError as error:
                done = f"the connection had ended: {error}"
            api = api_name(frame.api_key)
            text = (
                f"{proxy.name}, connection {link.number}: {api} v{frame.version} {blow.direction} "
                f"of {len(frame.content)} bytes: {done}"
            )
            damage = Damage(time.time(), side.name, api, blow.direction, field, text)
            self.damages.append(damage)
            self._say(f"     {damage}")

        with self._journal.fault(blow.kind, f"{proxy.name}, {blow.direction} of {api_name(key)}"):
            strike = Strike(blow.direction, frozenset({key}), inflict)
            proxy.strike = strike
            if not _struck(strike, _AWAITED_S, stop):
                proxy.redirect(proxy.server_port)  # clients send rare requests after that
            if not _struck(strike, _AWAITED_S, stop):
                strike.wanted = frozenset()
            _struck(strike, 5 * _AWAITED_S, stop)
            proxy.strike = None

    def _replace(self, side: WireSide, chance: random.Random, stop: threading.Event) -> None:
        proxy = chance.choice(side.proxies)
        with self._journal.fault(FaultKind.BROKER_REPLACED, proxy.name):
            proxy.redirect(side.foreign_ports[proxy.name])
            stop.wait(chance.uniform(*REPLACED_S))
            proxy.redirect(side.true_ports[proxy.name])


def _struck(strike: Strike, most_s: float, stop: threading.Event) -> bool:
    """Wait for a frame, at most until the event is set, and return whether there was one."""
    deadline = time.monotonic() + most_s
    while not strike.struck.wait(0.1) and time.monotonic() < deadline and not stop.is_set():
        pass
    return strike.struck.is_set()


def _flip(chance: random.Random, link: Link, frame: Frame) -> str:
    """Flip a bit, mostly of a field that no checksum covers."""
    first, last = 0, len(frame.content)
    if chance.random() >= _ANYWHERE:
        open_fields = [one for one in spans(frame) if one.leaf != COVERED and one.end > one.start]
        _, first, last = chance.choice(open_fields)
    bit = chance.randrange(8 * first, 8 * last)
    changed = bytearray(frame.content)
    changed[bit // 8] ^= 1 << bit % 8
    link.send(frame, bytes(changed))
    return f"{field_at(frame, bit // 8)} bit {bit % 8} of byte {bit // 8} flipped"


def _delay(chance: random.Random, link: Link, frame: Frame) -> str:
    delay_s = chance.uniform(*DELAYED_S)
    time.sleep(delay_s)
    link.send(frame)
    return f"sent {delay_s:.1f} s late"


def _cut(chance: random.Random, link: Link, frame: Frame) -> str:
    size = chance.randrange(len(frame.content))
    link.send(frame, frame.content[:size])
    link.cut()
    return f"cut after {size} bytes"


def _double(_: random.Random, link: Link, frame: Frame) -> str:
    link.send(frame, 2 * frame.content)
    return "sent twice"


def _swap(_: random.Random, link: Link, frame: Frame) -> str:
    link.hold(frame)
    return "sent after the next one"


def _swallow(_: random.Random, link: Link, __: Frame) -> str:
    link.swallows = True
    return "swallowed, like all that follows on this connection"
