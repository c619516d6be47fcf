"""Records as a shop with sensors would write them: the same ones for the same seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from logboom.batch import Record

CITIES: Final = ("berlin", "lisbon", "oslo", "porto", "turin", "vienna")
GOODS: Final = ("lamp", "kettle", "chair", "bicycle", "notebook", "umbrella", "tent")
LEVELS: Final = ("debug", "info", "info", "info", "warning", "error")
LINES: Final = (
    "request served in {} ms",
    "cache miss for page {}",
    "retry {} of 5: connection reset by peer",
    "pool has {} idle connections",
    "user {} signed in",
)

Maker = Callable[[random.Random, int], Record]


def order(chance: random.Random, number: int) -> Record:
    city, customer = chance.choice(CITIES), chance.randrange(400)
    lines: list[dict[str, Any]] = [
        {"article": chance.choice(GOODS), "count": chance.randint(1, 4), "price": chance.randint(299, 29900) / 100}
        for _ in range(chance.randint(1, 3))
    ]
    value = {
        "order": 100_000 + number,
        "customer": {"id": customer, "city": city.title(), "since": 2012 + customer % 14},
        "lines": lines,
        "total": round(sum(line["count"] * line["price"] for line in lines), 2),
        "gift": chance.random() < 0.1,
        "note": None,
    }
    tags = [tag for tag, share in (("paid", 0.8), ("express", 0.2), ("refunded", 0.05)) if chance.random() < share]
    return Record(
        json.dumps(value).encode(),
        key=b"customer-%d" % customer,
        channel=f"shop/{city}/{chance.choice(('web', 'app', 'till'))}",
        tags=tuple(tags),
        headers=(("content-type", b"application/json"), ("trace-id", b"%016x" % chance.getrandbits(64))),
    )


def temperature(chance: random.Random, number: int) -> Record:
    site = number % 20
    value = b"%.2f" % (18 + site / 4 + chance.gauss(0, 0.8))
    alert = ("alert",) if chance.random() < 0.02 else ()
    return Record(value, key=b"sensor-%d" % site, channel=f"site/{site}/temperature", tags=alert)


def click(chance: random.Random, number: int) -> Record:
    value = {"page": f"/{chance.choice(GOODS)}/{chance.randrange(90)}", "ms": chance.randrange(2, 900), "n": number}
    return Record(json.dumps(value).encode(), key=b"%08x" % chance.getrandbits(32))


def log_line(chance: random.Random, number: int) -> Record:
    level, host = chance.choice(LEVELS), chance.randrange(6)
    text = chance.choice(LINES).format(chance.randrange(1, 500))
    return Record(f"{level.upper():7} {text}".encode(), channel=f"host-{host}/app", tags=(level,))


def thumbnail(chance: random.Random, number: int) -> Record:
    return Record(
        b"\x89PNG\r\n\x1a\n" + chance.randbytes(chance.randrange(200, 2_000)),
        key=b"picture-%d" % number,
        headers=(("content-type", b"image/png"),),
    )


def customer(chance: random.Random, number: int) -> Record:
    """Every seventh is a tombstone."""
    who = chance.randrange(400)
    key = b"customer-%d" % who
    if number % 7 == 6:
        return Record(None, key=key, tags=("erased",))
    value = {"id": who, "city": chance.choice(CITIES).title(), "newsletter": chance.random() < 0.4}
    return Record(json.dumps(value).encode(), key=key)


def make(maker: Maker, seed: int, count: int, first: int = 0) -> list[Record]:
    chance = random.Random(f"{maker.__name__}/{seed}/{first}")
    return [maker(chance, number) for number in range(first, first + count)]


def stream(maker: Maker, seed: int) -> Iterator[Record]:
    chance, number = random.Random(f"{maker.__name__}/{seed}"), 0
    while True:
        yield maker(chance, number)
        number += 1
