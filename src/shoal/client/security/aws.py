"""
Logins at Amazon MSK by IAM: the options of its ``IAMLoginModule``, and tokens.

A token is a request to MSK's API, presigned with credentials of AWS (Signature Version 4). The package
``aws-msk-iam-sasl-signer-python`` of AWS signs, and botocore finds the credentials. Both are in the extra
``msk``.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from typing import Any

from ...errors import ConfigError
from .jaas import LoginModule
from .login import ENDPOINT_TIMEOUT_MS, AwsIam
from .token import AccessToken, NoToken, read_token

__all__ = ["IAM_HANDLERS", "IAM_MODULE", "read_iam", "sign_token"]

IAM_MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"

#: The handlers of aws-msk-iam-auth: the first for OAUTHBEARER, the second for AWS_MSK_IAM.
IAM_HANDLERS = frozenset(
    {
        "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
        "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }
)

#: Options that tune Java's own retries and logs, as the other options of MSKCredentialProvider.
_IGNORED = frozenset({"awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs"})
_READ = frozenset(
    {
        "awsProfileName",
        "awsRoleArn",
        "awsRoleSessionName",
        "awsRoleExternalId",
        "awsRoleAccessKeyId",
        "awsRoleSecretAccessKey",
        "awsRoleSessionToken",
        "awsStsRegion",
    }
)

#: The region in the name of a broker, such as b-1.demo.abc123.c2.kafka.us-east-1.amazonaws.com.
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com", re.IGNORECASE)

#: The variables that AWS's own clients read.
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")


def read_iam(properties: Mapping[str, str], module: LoginModule, where: str) -> AwsIam:
    """
    Read a login by IAM.

    Raises:
        ConfigError: An option is not supported, or the region is unknown, or the extra ``msk`` is missing.

    """
    if importlib.util.find_spec("aws_msk_iam_sasl_signer") is None:
        raise ConfigError(
            f"{where}: AWS_MSK_IAM needs the package aws-msk-iam-sasl-signer-python. Install 'shoal[msk]' "
            "here and on the machines of Spark's executors"
        )
    options = module.options
    extensions = {each for each in options if each.startswith("extension_")}
    module.refuse_others(_READ | _IGNORED | extensions, where)
    return AwsIam(
        region=_region(properties, where),
        profile=options.get("awsProfileName"),
        role_arn=options.get("awsRoleArn"),
        role_session_name=options.get("awsRoleSessionName"),
        role_external_id=options.get("awsRoleExternalId"),
        role_key=_role_key(options, where),
        sts_region=options.get("awsStsRegion"),
    )


def _role_key(options: Mapping[str, str], where: str) -> tuple[str, str, str | None] | None:
    access_key, secret_key = options.get("awsRoleAccessKeyId"), options.get("awsRoleSecretAccessKey")
    if access_key and secret_key:
        return access_key, secret_key, options.get("awsRoleSessionToken")
    if access_key or secret_key:
        raise ConfigError(
            f"{where}: sasl.jaas.config needs both awsRoleAccessKeyId and awsRoleSecretAccessKey, or neither"
        )
    return None


def _region(properties: Mapping[str, str], where: str) -> str:
    """Return the region of the brokers' names, else that of the environment, as custom domains need it."""
    found = _REGION.search(properties.get("bootstrap.servers", ""))
    region = found[1].lower() if found else next(filter(None, map(os.environ.get, _REGION_VARIABLES)), None)
    if not region:
        raise ConfigError(
            f"{where}: the region of the MSK cluster is unknown, since bootstrap.servers has no name such as "
            "b-1.demo.c2.kafka.us-east-1.amazonaws.com. Set AWS_REGION in the environment"
        )
    return region


#: As aws-msk-iam-auth names the session of a role.
_SESSION_NAME = "aws-msk-iam-auth"


def sign_token(iam: AwsIam) -> AccessToken:
    """
    Sign a token with the credentials that AWS's clients would find here.

    Raises:
        NoToken: There are no credentials, or the role cannot be assumed.

    """
    # Imported here and below, since only the extra has these packages, and they take long to import.
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
        from botocore.credentials import CredentialProvider
        from botocore.exceptions import BotoCoreError, ClientError, ProfileNotFound
    except ModuleNotFoundError as error:
        # The driver has it, or it would not have read the properties.
        raise NoToken(
            f"AWS_MSK_IAM needs the package {error.name}. Install 'shoal[msk]' on this machine, too"
        ) from error

    class Found(CredentialProvider):  # type: ignore[misc]
        """Credentials that were found already, as the signer takes them."""

        def load(self) -> Any:
            return credentials

    try:
        credentials = _credentials(iam)
        token, _ = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(iam.region, Found())
    except ProfileNotFound as error:
        raise NoToken(f"no credentials of AWS: {error}. Check awsProfileName, or AWS_PROFILE") from error
    except ClientError as error:
        raise NoToken(f"AWS refuses the role {iam.role_arn}: {error}") from error
    except (BotoCoreError, ValueError) as error:
        # Services of AWS that give credentials (IMDS, STS) may be unavailable for a while.
        raise NoToken(f"no credentials of AWS: {error}", may_pass=True) from error
    # AWS's own limit of a presigned request to MSK.
    lives_s = float(MSKAuthTokenProvider.DEFAULT_TOKEN_EXPIRY_SECONDS)
    return read_token(token, "the signed request of AWS", lives_s=lives_s)


def _credentials(iam: AwsIam) -> Any:
    """Return the credentials of the role, the profile, or the default chain."""
    from botocore.session import Session

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


def _assumed(session: Any, iam: AwsIam) -> Any:
    from botocore.config import Config
    from botocore.credentials import Credentials

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
