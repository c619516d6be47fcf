"""`logboom serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from logboom.cli.names import complete_node_settings
from logboom.cli.options import Json

DETAILS = """\
Needs no configuration: data goes to ~/.local/share/logboom (of root to /var/lib/logboom), and it listens on
127.0.0.1: 1773 for clients, 1774 for the logd text protocol, 1775 for HTTP. A default port that is taken is left out.
There is no authentication: whoever reaches an address may read and write.

Ctrl-C or SIGTERM ends it: no new requests, what was promised is kept, everything is synced. A second signal ends it at
once, and the next start recovers.

Exit code 0: ended as it should. 1: something could not be made durable. 2: it could not start. 130, 143: ended at once.

Examples:
  logboom serve
  logboom serve --data /srv/logboom --listen 0.0.0.0:1773 --unix /run/logboom/logboom.sock
  logboom serve --set limits.batch_bytes=32MiB --set topics.auto_create=false
  logboom serve --listen 127.0.0.1:0 --json | jq -r .binary[0]
  logboom serve --http 0.0.0.0:1775 --set http.cors_origins=https://example.org
  logboom serve --data /srv/copy --replicate-from 10.0.0.7:1774
"""
app = App(name="serve", help_epilogue=DETAILS)


@app.default
def serve(
    *,
    data: str | None = None,
    listen: Annotated[list[str] | None, Parameter(negative="")] = None,
    unix: Path | None = None,
    logd: Annotated[list[str] | None, Parameter(negative="")] = None,
    http: Annotated[list[str] | None, Parameter(negative="")] = None,
    replicate_from: str | None = None,
    config: Path | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="", completer=complete_node_settings)] = None,
    ready_file: Path | None = None,
    as_json: Json = False,
) -> int:
    """Start a node, in the foreground.

    Parameters
    ----------
    data
        The data directory; it is made where there is none.
    listen
        An address for the binary protocol, HOST:PORT; port 0 is any free one. May be given several times.
    unix
        The path of a Unix socket to listen on as well.
    logd
        An address for the logd text protocol. May be given several times.
    http
        An address for HTTP. May be given several times.
    replicate_from
        The logd address of a node to copy: this node is a read-only replica of it until `logboom promote`.
    config
        A TOML file. `logboom config example` prints one.
    set_
        KEY=VALUE: any key of the configuration. May be given several times.
    ready_file
        Written once it listens: JSON with process id, addresses, node and data directory. Removed at the end.
    as_json
        One line of JSON when it listens, instead of text: the same as in the ready file.
    """
    from logboom.server.process import run
    from logboom.server.sources import Setting, load, read_flag

    flags = [read_flag(text) for text in set_ or ()]
    if data is not None:
        flags.append(Setting("data", data, "--data"))
    if listen:
        flags.append(Setting("listen.binary", listen, "--listen"))
    if logd:
        flags.append(Setting("listen.logd", logd, "--logd"))
    if http:
        flags.append(Setting("listen.http", http, "--http"))
    if replicate_from is not None:
        flags.append(Setting("replicate_from", replicate_from, "--replicate-from"))
    if unix is not None:
        flags.append(Setting("listen.unix", str(unix), "--unix"))
    loaded = load(flags, None if config is None else str(config))
    return run(loaded, None if ready_file is None else str(ready_file), as_json)
