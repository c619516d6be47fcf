"""`logboom role ...`."""

from __future__ import annotations

from cyclopts import App

from logboom.cli.access_place import administer
from logboom.cli.options import Data, Json, Server, User
from logboom.cli.show.output import show_json, show_table

DETAILS = """\
A role is a name for which rules are made: `logboom acl allow role:NAME ...`. A
user has the roles that he was given (`logboom user add --role`), and those that
are set here for him or for one of his groups. The role admin is there from the
beginning, and may do everything.

Examples:
  logboom role set auditor alice group:revision
  logboom acl allow role:auditor read topic '*'
  logboom role set auditor
  logboom role list
"""
app = App(name="role", help="Set and list who has a role.", help_epilogue=DETAILS)


@app.command(name="set")
def set_role(role: str, /, *member: User, server: Server = None, data: Data = None, as_json: Json = False) -> None:
    """Say who has a role, besides those whose user has it.

    Parameters
    ----------
    role
        Its name.
    member
        All who are to have it: users, and groups as group:NAME. Without any, nobody.
    """
    administer(server, data, lambda node, caller: node.set_role(role, member, caller=caller))
    if as_json:
        show_json({"name": role, "members": member})
    else:
        print(f"{role}: {', '.join(member) or 'nobody'}")


@app.command(name="list")
def list_roles(*, server: Server = None, data: Data = None, as_json: Json = False) -> None:
    """List roles that were set. What a user has by himself, `logboom user list` shows."""
    found = administer(server, data, lambda node, caller: node.list_roles(caller=caller))
    if as_json:
        show_json(found)
    else:
        show_table(("role", "members"), ((role.name, ",".join(role.members)) for role in found))
