"""
Logins of the gateway's clients by SASL.

Either the gateway has users of its own (:mod:`.users`), and checks the logins of its clients
(:mod:`.conversation`, :mod:`.exchange`). Or it forwards each login to the broker (:mod:`.passing`).
"""

from .conversation import Conversation
from .exchange import MECHANISMS, LoginFailed, wake_login
from .passing import Passing
from .users import UserFile, make_entry

__all__ = ["MECHANISMS", "Conversation", "LoginFailed", "Passing", "UserFile", "make_entry", "wake_login"]
