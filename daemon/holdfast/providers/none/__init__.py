"""Provider ``none``: nodes are drained and jobs recovered, and operators repair machines."""

from __future__ import annotations

from holdfast.providers.kind import ProviderKind

PROVIDER = ProviderKind("holdfast.providers.none.adapter:NoProvider")
