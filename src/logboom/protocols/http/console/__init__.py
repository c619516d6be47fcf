"""The console: a page for people that shows the node and changes it, by way of the public API alone.

Its files lie beside this module, a folder for each page: overview, topic and its tabs (records, cursors, segments,
settings), groups, stages, pipeline, access with signing in. What the pages share is text/ (values as text), page/
(elements) and node/ (what the node says and takes); each imports only what stands before it.

The files are listed, read and compressed once, when the first is asked for; a name that is not in that list leads
nowhere, so no path does. The headers let the browser run these scripts and no other, make nothing of text but text, and
talk to this node alone.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from logboom.protocols.http.problem import RequestError
from logboom.protocols.http.schema.operation import Content, Operation

if TYPE_CHECKING:
    from logboom.protocols.http.front_end import HttpFrontEnd

INDEX: Final = "index.html"
MEDIA_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
"""Of the files that /console/ has, by suffix."""
POLICY: Final = "; ".join(
    f"{name} {source}"
    for name, source in {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "img-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }.items()
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


class ConsoleFile(NamedTuple):
    media_type: str
    plain: bytes
    zipped: bytes | None
    """None where that is no smaller."""
    tag: str
    """Changes with the content; the same for both encodings, so it is a weak one."""


async def show_console(front_end: HttpFrontEnd, request: Request) -> Response:
    return _answer(request, (await asyncio.to_thread(_files))[INDEX])


async def show_console_file(front_end: HttpFrontEnd, request: Request) -> Response:
    name = "/".join(request.path_params.values())
    file = (await asyncio.to_thread(_files)).get(name) if name != INDEX else None
    if file is None:
        raise RequestError(f"the console has no file {name[:200]!r}", 404, "not-found", "GET / shows the console")
    return _answer(request, file)


async def show_console_folder_file(front_end: HttpFrontEnd, request: Request) -> Response:
    return await show_console_file(front_end, request)


def _answer(request: Request, file: ConsoleFile) -> Response:
    headers = {**_HEADERS, "ETag": file.tag}
    if _names(_header(request, "if-none-match"), file.tag):
        return Response(status_code=304, headers=headers)
    if file.zipped is not None and _takes_gzip(_header(request, "accept-encoding")):
        return Response(file.zipped, 200, {**headers, "Content-Encoding": "gzip"}, file.media_type)
    return Response(file.plain, 200, headers, file.media_type)


def _header(request: Request, name: str) -> str:
    return ",".join(request.headers.getlist(name))


def _names(known: str, tag: str) -> bool:
    """Whether an If-None-Match has this tag. RFC 9110, 13.1.2: weak and strong ones are compared alike."""
    tags = [entry.strip().removeprefix("W/") for entry in known.split(",")]
    return tags == ["*"] or tag.removeprefix("W/") in tags


def _takes_gzip(encodings: str) -> bool:
    weights: dict[str, bool] = {}
    for entry in encodings.lower().split(","):
        name, _, weight = entry.partition(";")
        weights[name.strip()] = weight.replace(" ", "").rstrip("0.") != "q="
    return weights.get("gzip", weights.get("*", False))


@cache
def _files() -> dict[str, ConsoleFile]:
    """Every file by its name, `folder/name` where it lies in one. Takes some time when it is first called."""
    root = resources.files(__name__)
    found = _files_of(root)
    for folder in root.iterdir():
        if folder.is_dir():
            found |= {f"{folder.name}/{name}": file for name, file in _files_of(folder).items()}
    return found


def _files_of(folder: Traversable) -> dict[str, ConsoleFile]:
    found: dict[str, ConsoleFile] = {}
    for entry in folder.iterdir():
        suffix = entry.name[entry.name.rfind(".") :]
        media_type = "text/html" if entry.name == INDEX else MEDIA_TYPES.get(suffix)
        if media_type is not None and entry.is_file():
            found[entry.name] = _file(media_type, entry.read_bytes())
    return found


def _file(media_type: str, plain: bytes) -> ConsoleFile:
    zipped = gzip.compress(plain, mtime=0)
    tag = f'W/"{hashlib.sha256(plain).hexdigest()[:32]}"'
    return ConsoleFile(media_type, plain, zipped if len(zipped) < len(plain) else None, tag)


_ANSWER_HEADERS: Final = {
    "ETag": "Changes with the content. With If-None-Match the answer is 304 while it has not.",
    "Content-Encoding": "gzip, where that was accepted.",
}
_MEANINGS: Final = {"folder": "The page that the file belongs to, or what pages share.", "file": "Its name."}

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/",
        show_console,
        "The console, a page for people",
        "Page",
        "It shows the node and its topics, and changes them, by way of this API.",
        answers={200: {"text/html": Content(str)}, 304: {}},
        answer_headers=_ANSWER_HEADERS,
    ),
    *(
        Operation(
            "GET",
            f"/console/{path}",
            handler,
            summary,
            "Page",
            meanings={name: meaning for name, meaning in _MEANINGS.items() if f"{{{name}}}" in path},
            answers={200: {media_type: Content(str) for media_type in MEDIA_TYPES.values()}, 304: {}},
            answer_headers=_ANSWER_HEADERS,
        )
        for path, handler, summary in (
            ("{file}", show_console_file, "A file of the console"),
            ("{folder}/{file}", show_console_folder_file, "A file of one of the console's pages"),
        )
    ),
)
