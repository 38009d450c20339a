#!/bin/sh
# Before an upgrade restarts the agent: would it start with the agent.toml that is here? One that runs goes on otherwise.
#
#   agent_settings.sh
#
# Exit status: 0 yes, or there is none; 1 no, and why.
# shellcheck disable=SC1091 # checked by itself
set -u

HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
. "$HERE/lib/common.sh"

[ -f "$R/etc/holdfast/agent.toml" ] || exit 0
why=$(refused_settings "$R/etc/holdfast/agent.toml") && exit 0
say "the agent would not start with /etc/holdfast/agent.toml, so it is not restarted, and goes on with the release before: $why." \
	"Mend it (docs/upgrade.md), then: systemctl restart holdfast-agent"
exit 1
