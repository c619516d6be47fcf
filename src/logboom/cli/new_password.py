"""A new password, from a terminal or from standard input; and what a node keeps instead of it.

It is never an option: every process of the machine could read that.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from logboom.errors import InvalidPassword

if TYPE_CHECKING:
    from logboom.access.credential import Credential


def read_credentials(user: str) -> list[Credential]:
    """Ask for a password, twice, or take the first line of standard input. Raises InvalidPassword."""
    from logboom.access.credential import MECHANISMS, SALT_BYTES, Credential

    password = _read(user)
    return [Credential.derive(password, os.urandom(SALT_BYTES), mechanism) for mechanism in MECHANISMS]


def _read(user: str) -> str:
    from logboom.access.credential import PASSWORD_BYTES_MOST, check_new_password

    if sys.stdin.isatty():
        from getpass import getpass

        password = getpass(f"New password of {user}: ")
        check_new_password(password)
        if getpass("The same again: ") != password:
            raise InvalidPassword("the two are not the same: try again")
        return password
    password = sys.stdin.readline(4 * PASSWORD_BYTES_MOST).removesuffix("\n").removesuffix("\r")
    if not password:
        raise InvalidPassword("there is no password: write it on one line of standard input, or say --no-password")
    check_new_password(password)
    return password
