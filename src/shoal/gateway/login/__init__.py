"""
Logins of the gateway's clients by SASL.

Either the gateway has users of its own (:mod:`.users`), and checks the logins of its clients
(:mod:`.gateway_login`, :mod:`.exchange`). Or it forwards each login to the broker
(:mod:`.pass_through_login`).
"""

from .exchange import MECHANISMS, LoginFailed, is_checked, wake_login
from .gateway_login import GatewayLogin
from .pass_through_login import PassThroughLogin
from .users import UserFile, make_entry

__all__ = [
    "MECHANISMS",
    "GatewayLogin",
    "LoginFailed",
    "PassThroughLogin",
    "UserFile",
    "is_checked",
    "make_entry",
    "wake_login",
]
