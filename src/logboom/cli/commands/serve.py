"""`logboom serve`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from logboom.cli.names import complete_node_settings
from logboom.cli.options import Json
from logboom.server.front_ends import FRONT_ENDS, FrontEndKind

DETAILS = """\
Needs no configuration: data goes to ~/.local/share/logboom (for root /var/lib/logboom), and it listens on 127.0.0.1:
1773 for clients, 1774 for the logd text protocol, 1775 for HTTP. A default port that is in use is left out. On this
machine everybody may read and write; for other machines it listens with TLS only, and asks them to sign in.

Ctrl-C or SIGTERM stops it: it takes no new requests, answers the open ones, and syncs all data. A second signal stops
it at once, and the next start recovers.

Exit code 0: stopped cleanly. 1: some data could not be synced. 2: it could not start. 130, 143: stopped at once.

Examples:
  logboom serve
  logboom serve --data /srv/logboom --listen 0.0.0.0:1773 --set tls.certificate=node.pem --set tls.key=node.key
  logboom serve --set limits.batch_bytes=32MiB --set topics.auto_create=false
  logboom serve --listen 127.0.0.1:0 --json | jq -r .binary[0]
  logboom serve --http 127.0.0.1:8080 --set http.cors_origins=https://example.org
  logboom serve --listen 0.0.0.0:1773 --insecure
  logboom serve --data /srv/copy --replicate-from 10.0.0.7:1774
"""
app = App(name="serve", help_epilogue=DETAILS)


def _address_option(kind: FrontEndKind) -> tuple[str, Any, None]:
    """The first says for all what an address is."""
    form = ", HOST:PORT; port 0 is any free one" if kind is FRONT_ENDS[0] else ""
    words = f"An address for {kind.what}{form}. May be given several times."
    return kind.option, Annotated[list[str] | None, Parameter(negative="", help=words)], None


def _address_options() -> Iterator[tuple[str, Any, None]]:
    first, *others = map(_address_option, FRONT_ENDS)
    yield first
    words = "The path of a Unix socket to listen on as well."
    yield "unix", Annotated[Path | None, Parameter(help=words)], None
    yield from others


if TYPE_CHECKING:
    Addresses = Any
else:
    Addresses = make_dataclass("Addresses", _address_options(), namespace={"__module__": __name__}, frozen=True)


@app.default
def serve(
    *,
    data: str | None = None,
    addresses: Annotated[Addresses, Parameter(name="*")] = None,
    replicate_from: str | None = None,
    config: Path | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="", completer=complete_node_settings)] = None,
    insecure: bool = False,
    ready_file: Path | None = None,
    as_json: Json = False,
) -> int:
    """Start a node, in the foreground.

    Parameters
    ----------
    data
        The data directory; created if it does not exist.
    replicate_from
        The logd address of a node to copy: this node is a read-only replica of it until `logboom promote`.
    config
        A TOML file. `logboom config example` prints one.
    set_
        KEY=VALUE: any key of the configuration. May be given several times.
    insecure
        Listen for other machines without TLS, and let everybody who reaches the node do everything.
    ready_file
        Written when the node listens: JSON with process id, addresses, node and data directory. Removed when it stops.
    as_json
        One line of JSON when it listens, instead of text: the same as in the ready file.
    """
    from logboom.server.process import run
    from logboom.server.sources import Setting, load, read_flag

    flags = [read_flag(text) for text in set_ or ()]
    if data is not None:
        flags.append(Setting("data", data, "--data"))
    if addresses is not None:
        given = [(kind, getattr(addresses, kind.option)) for kind in FRONT_ENDS]
        flags += [Setting(f"listen.{kind.name}", some, f"--{kind.option}") for kind, some in given if some]
        if addresses.unix is not None:
            flags.append(Setting("listen.unix", str(addresses.unix), "--unix"))
    if replicate_from is not None:
        flags.append(Setting("replicate_from", replicate_from, "--replicate-from"))
    if insecure:
        flags.append(Setting("access.insecure", True, "--insecure"))
    loaded = load(flags, None if config is None else str(config))
    return run(loaded, None if ready_file is None else str(ready_file), as_json)
