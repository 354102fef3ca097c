"""
Logins of the gateway's clients by SASL.

Either the gateway checks them itself, against a file of users (:mod:`.users`, :mod:`.exchange`,
:mod:`.conversation`), or it passes them on to the broker behind it (:mod:`.passing`).
"""

from .conversation import Conversation
from .exchange import MECHANISMS, LoginFailed, look_at_login
from .passing import Passing
from .users import UserFile, make_entry

__all__ = ["MECHANISMS", "Conversation", "LoginFailed", "Passing", "UserFile", "look_at_login", "make_entry"]
