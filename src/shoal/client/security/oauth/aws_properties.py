"""Read the options of Amazon MSK's ``IAMLoginModule`` into :class:`AwsIam`."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping

from ....errors import ConfigError
from .sources import AwsIam

__all__ = ["IAM_HANDLERS", "IAM_MODULE", "read_iam"]

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


def read_iam(properties: Mapping[str, str], options: Mapping[str, str], where: str) -> AwsIam:
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
    unknown = sorted(each for each in options.keys() - _READ - _IGNORED if not each.startswith("extension_"))
    if unknown:
        raise ConfigError(f"{where}: sasl.jaas.config has the unknown option {unknown[0]}. Remove it")
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
