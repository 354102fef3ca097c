"""
Logins at Amazon MSK by IAM: the options of its ``IAMLoginModule``, and a class of tokens as a user has one.

A token is a request to MSK's API, presigned with credentials of AWS (Signature Version 4). The package
``aws-msk-iam-sasl-signer-python`` of AWS signs, and botocore finds and renews the credentials. Both are in
the extra ``msk``.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from ...errors import ConfigError
from .jaas import LoginModule
from .login import ENDPOINT_TIMEOUT_MS, TokenClass

__all__ = ["IAM_HANDLERS", "IAM_MODULE", "IAM_TOKENS", "IamTokens", "read_iam"]

IAM_MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"

#: The name of the class below, as a user would give one of his own.
IAM_TOKENS = f"{__name__}:IamTokens"

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


def read_iam(properties: Mapping[str, str], module: LoginModule, where: str) -> TokenClass:
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
    if ("awsRoleAccessKeyId" in options) is not ("awsRoleSecretAccessKey" in options):
        raise ConfigError(
            f"{where}: sasl.jaas.config needs both awsRoleAccessKeyId and awsRoleSecretAccessKey, or neither"
        )
    read = {name: options[name] for name in sorted(_READ & options.keys())}
    return TokenClass(IAM_TOKENS, tuple({"region": _region(properties, where), **read}.items()))


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


class IamTokens:
    """Signs a token for each login with the credentials that AWS's clients would find, or those of a role."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Begin without credentials; the options are those of :func:`read_iam`."""
        self._options = options
        self._credentials: Any = None

    def token(self) -> str:
        """
        Return a new token.

        Raises:
            ConfigError: There are no credentials, or the role cannot be assumed.
            Exception: A service of AWS that gives credentials (IMDS, STS) does not answer.

        """
        # Imported here and below, since only the extra has these packages, and they take long to import.
        try:
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
            from botocore.credentials import CredentialProvider
            from botocore.exceptions import ClientError, ProfileNotFound
        except ModuleNotFoundError as error:
            # The driver has it, or it would not have read the properties.
            raise ConfigError(
                f"AWS_MSK_IAM needs the package {error.name}. Install 'shoal[msk]' on this machine, too"
            ) from error

        class Found(CredentialProvider):  # type: ignore[misc]
            """Credentials that were found already, as the signer takes them."""

            def load(self) -> Any:
                return found

        try:
            self._credentials = self._credentials or _credentials(self._options)
            found = self._credentials.get_frozen_credentials()
        except (ClientError, ProfileNotFound) as error:
            raise ConfigError(
                f"no credentials of AWS: {error}. Check awsProfileName, AWS_PROFILE and awsRoleArn"
            ) from error
        region = self._options["region"]
        token, _ = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(region, Found())
        return str(token)


def _credentials(options: Mapping[str, str]) -> Any:
    """Return the credentials of the role, the profile, or the default chain, which renew themselves."""
    from botocore.config import Config
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
    from botocore.session import Session

    session = Session(profile=options.get("awsProfileName"))
    if "awsRoleAccessKeyId" in options:
        key = (options["awsRoleAccessKeyId"], options["awsRoleSecretAccessKey"])
        session.set_credentials(*key, options.get("awsRoleSessionToken"))
    found = session.get_credentials()
    if found is None:
        raise ConfigError(
            "no credentials of AWS: neither the environment, nor AWS's configuration files, nor this "
            "machine has any. Set AWS_PROFILE, or awsProfileName or awsRoleArn in sasl.jaas.config"
        )
    if "awsRoleArn" not in options:
        return found
    # A login waits for it: botocore's own limits are minutes.
    timeout_s = ENDPOINT_TIMEOUT_MS / 1000
    limits = Config(connect_timeout=timeout_s, read_timeout=timeout_s, retries={"total_max_attempts": 1})
    region = options.get("awsStsRegion", options["region"])
    asked = {"RoleSessionName": options.get("awsRoleSessionName", _SESSION_NAME)}
    if "awsRoleExternalId" in options:
        asked["ExternalId"] = options["awsRoleExternalId"]
    client = partial(session.create_client, region_name=region, config=limits)
    fetcher = AssumeRoleCredentialFetcher(client, found, options["awsRoleArn"], extra_args=asked)
    return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
