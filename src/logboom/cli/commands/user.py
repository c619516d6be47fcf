"""`logboom user ...`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from logboom.cli.access_place import administer
from logboom.cli.new_password import read_credentials
from logboom.cli.options import Data, Flag, Json, Server, User
from logboom.cli.show.output import show_json, show_table

if TYPE_CHECKING:
    from logboom.broker.api import UserInfo

DONE, REFUSED = 0, 2
DETAILS = """\
A password is asked for, twice, or read from standard input where that is no
terminal. It does not leave this command: the node gets what SCRAM makes of it.
Everybody may set his own password; everything else takes the right to manage
users, which the role admin has. With --data nobody needs to sign in: whoever
owns the data directory may do everything, whether the node runs or not.

Examples:
  logboom user add alice --role admin --data /srv/logboom
  logboom user add bob --group analysts < password.txt
  logboom user add importer --no-password
  logboom user set-password alice
  logboom user change bob --group analysts --group ops
  logboom user change bob --disable
  logboom user remove bob
  logboom user list
"""
app = App(name="user", help="Add, change, remove and list users.", help_epilogue=DETAILS)
NAMES = ("user", "groups", "roles", "password", "enabled", "created")
Groups = Annotated[list[str] | None, Parameter(name="--group", negative="")]
Roles = Annotated[list[str] | None, Parameter(name="--role", negative="")]


@app.command
def add(
    name: str,
    /,
    *,
    group: Groups = None,
    role: Roles = None,
    no_password: Flag = False,
    server: Server = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Add a user.

    Parameters
    ----------
    name
        1 to 128 letters, digits and . _ @ : / + -
    group
        A group to be in; may be given more than once.
    role
        A role to have; may be given more than once. The role admin may do everything.
    no_password
        Nobody signs in with a password: only with tokens, or a certificate of this name.
    """
    from logboom.access.principal import check_principal

    check_principal(name)
    credentials = [] if no_password else read_credentials(name)
    made = administer(
        server,
        data,
        lambda node, caller: node.add_user(name, credentials, group or (), role or (), caller=caller),
        create=True,
    )
    _tell(made, f"added {name}", as_json)


@app.command
def set_password(name: User, /, *, server: Server = None, data: Data = None, as_json: Json = False) -> None:
    """Set a user's password. Connections that are open stay open."""
    credentials = read_credentials(name)
    changed = administer(server, data, lambda node, caller: node.change_user(name, credentials, caller=caller))
    _tell(changed, f"set the password of {name}", as_json)


@app.command
def change(
    name: User,
    /,
    *,
    group: Annotated[list[str] | None, Parameter(name="--group", negative="--no-groups")] = None,
    role: Annotated[list[str] | None, Parameter(name="--role", negative="--no-roles")] = None,
    enable: Flag = False,
    disable: Flag = False,
    no_password: Flag = False,
    server: Server = None,
    data: Data = None,
    as_json: Json = False,
) -> int:
    """Change a user's groups and roles, or forbid him everything for a while. It counts at once.

    Parameters
    ----------
    name
        The user.
    group
        All the groups he is to be in; may be given more than once.
    role
        All the roles he is to have; may be given more than once.
    enable
        Let him sign in again.
    disable
        Let him do nothing, also on connections that are open, and with tokens.
    no_password
        Take his password away.
    """
    if enable and disable:
        print("logboom: --enable and --disable: say one of them", file=sys.stderr)
        return REFUSED
    enabled = enable if enable or disable else None
    credentials: list[Any] | None = [] if no_password else None
    if group is None and role is None and enabled is None and credentials is None:
        print("logboom: say what to change: --group, --role, --enable, --disable or --no-password", file=sys.stderr)
        return REFUSED
    changed = administer(
        server,
        data,
        lambda node, caller: node.change_user(name, credentials, group, role, enabled, caller=caller),
    )
    _tell(changed, f"changed {name}", as_json)
    return DONE


@app.command
def remove(name: User, /, *, server: Server = None, data: Data = None) -> None:
    """Remove a user with all his tokens, and with the rules and roles that name him."""
    removed = administer(server, data, lambda node, caller: node.remove_user(name, caller=caller))
    counts = {"tokens": removed.tokens, "rules": removed.rules, "roles": removed.roles}
    gone = ", ".join(f"{what}: {count}" for what, count in counts.items() if count)
    print(f"removed {name}{f' ({gone})' if gone else ''}")
    if removed.kept:
        print(f"logboom: {removed.kept} rules and roles still name {name}: you may not change those", file=sys.stderr)


@app.command(name="list")
def list_users(*, server: Server = None, data: Data = None, as_json: Json = False) -> None:
    """List users. Without the right to see others: yourself."""
    found = administer(server, data, lambda node, caller: node.list_users(caller=caller))
    if as_json:
        show_json(found)
    else:
        show_table(NAMES, map(_row, found))


def _tell(user: UserInfo, text: str, as_json: bool) -> None:
    if as_json:
        show_json(user)
    else:
        print(text)


def _row(user: UserInfo) -> tuple[Any, ...]:
    from logboom.cli.show.moment import show_moment

    groups, roles = ",".join(user.groups) or None, ",".join(user.roles) or None
    password = show_moment(user.changed) if user.mechanisms else "none"
    return user.name, groups, roles, password, "yes" if user.enabled else "no", show_moment(user.created)
