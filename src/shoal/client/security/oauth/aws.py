"""
Tokens for Amazon MSK: a request to its API, presigned with credentials of AWS (Signature Version 4).

The package ``aws-msk-iam-sasl-signer-python`` of AWS signs, and botocore finds the credentials. Both are
in the extra ``msk``.
"""

from __future__ import annotations

from typing import Any

from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from botocore.config import Config
from botocore.credentials import CredentialProvider, Credentials
from botocore.exceptions import BotoCoreError, ClientError, ProfileNotFound
from botocore.session import Session

from .sources import ENDPOINT_TIMEOUT_MS, AwsIam
from .token import AccessToken, NoToken, read_token

__all__ = ["sign_token"]

#: As aws-msk-iam-auth names the session of a role.
_SESSION_NAME = "aws-msk-iam-auth"

#: AWS's own limit of a presigned request to MSK.
_LIVES_S = float(MSKAuthTokenProvider.DEFAULT_TOKEN_EXPIRY_SECONDS)


def sign_token(iam: AwsIam) -> AccessToken:
    """
    Sign a token with the credentials that AWS's clients would find here.

    Raises:
        NoToken: There are no credentials, or the role cannot be assumed.

    """
    try:
        credentials = _credentials(iam)
        token, _ = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(
            iam.region, _Found(credentials)
        )
    except ProfileNotFound as error:
        raise NoToken(f"no credentials of AWS: {error}. Check awsProfileName, or AWS_PROFILE") from error
    except ClientError as error:
        raise NoToken(f"AWS refuses the role {iam.role_arn}: {error}") from error
    except (BotoCoreError, ValueError) as error:
        # Services of AWS that give credentials (IMDS, STS) may be unavailable for a while.
        raise NoToken(f"no credentials of AWS: {error}", may_pass=True) from error
    return read_token(token, "the signed request of AWS", lives_s=_LIVES_S)


def _credentials(iam: AwsIam) -> Any:
    """Return the credentials of the role, the profile, or the default chain."""
    session = Session(profile=iam.profile)
    if iam.role_key:
        session.set_credentials(*iam.role_key)
    if not iam.role_arn:
        found = session.get_credentials()
        if found is None:
            raise NoToken(
                "no credentials of AWS: neither the environment, nor AWS's configuration files, nor this "
                "machine has any. Set AWS_PROFILE, or awsProfileName or awsRoleArn in sasl.jaas.config"
            )
        return found.get_frozen_credentials()
    return _assumed(session, iam)


def _assumed(session: Session, iam: AwsIam) -> Credentials:
    # A login waits for it: botocore's own limits are minutes.
    timeout_s = ENDPOINT_TIMEOUT_MS / 1000
    limits = Config(connect_timeout=timeout_s, read_timeout=timeout_s, retries={"total_max_attempts": 1})
    sts = session.create_client("sts", region_name=iam.sts_region or iam.region, config=limits)
    external_id = {"ExternalId": iam.role_external_id} if iam.role_external_id else {}
    answer = sts.assume_role(
        RoleArn=iam.role_arn, RoleSessionName=iam.role_session_name or _SESSION_NAME, **external_id
    )
    given = answer["Credentials"]
    return Credentials(given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"])


class _Found(CredentialProvider):  # type: ignore[misc]
    """Credentials that were found already, as the signer takes them."""

    def __init__(self, credentials: Any) -> None:
        super().__init__()
        self._credentials = credentials

    def load(self) -> Any:
        return self._credentials
