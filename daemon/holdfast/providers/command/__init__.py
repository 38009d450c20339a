"""Provider ``command``: a site's own program that reboots and replaces machines."""

from __future__ import annotations

from holdfast.providers.command.settings import CommandSettings
from holdfast.providers.kind import ProviderKind

PROVIDER = ProviderKind("holdfast.providers.command.adapter:CommandProvider", CommandSettings)
