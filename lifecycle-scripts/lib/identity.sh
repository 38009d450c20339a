# shellcheck shell=sh
# Sourced. Who this machine is, and its agent.toml. Needs common.sh, token.sh.

CONFIG=$R/etc/holdfast/agent.toml
MARK='# Written by holdfast enrol.sh. Settings of your own belong into agent.site.toml beside this file.' # word: nodes have files with this line

learn_machine() { # sets kind role source node instance group cluster region controllers
	kind='' role='' source='' node='' instance='' group='' cluster='' region='' controllers=''
	_python=$(any_python) || {
		say "no python3 at all: cannot identify this machine"
		return 1
	}
	export HOLDFAST_NODE="${HOLDFAST_NODE:-}"
	_facts=$("$_python" "$LIB/machine.py" "${1:-}") || return 1
	while IFS='=' read -r _key _value; do
		case $_key in kind | role | source | node | instance | group | cluster | region | controllers) eval "$_key=\$_value" ;; esac
	done <<FACTS
$_facts
FACTS
	region=${HOLDFAST_REGION:-$region}
	controllers=$(printf '%s' "${HOLDFAST_CONTROLLERS:-$controllers}" | tr ' ' ',')
	say "kind=$kind role=$role (${source:-?}) node=$node instance=${instance:-?} group=${group:--} cluster=${cluster:--}"
}

instance_file() { # the firmware's file where it is always right, else one of ours
	_dmi=/sys/devices/virtual/dmi/id/board_asset_tag
	if [ "$(cat "$R$_dmi" 2>/dev/null)" = "$instance" ]; then
		printf '%s' "$_dmi"
	else
		printf '%s\n' "$instance" | replace_file "$R/etc/holdfast/instance-id" 0644 || true
		printf '/etc/holdfast/instance-id'
	fi
}

toml_list() { # a,b → "a", "b"
	printf '%s' "$1" | sed 's/,,*/", "/g; s/^/"/; s/$/"/'
}

agent_toml() {
	printf '%s\n' "$MARK"
	printf 'node = "%s"\n' "$node"
	[ -z "$controllers" ] || printf 'controllers = [%s]\n' "$(toml_list "$controllers")"
	printf 'token_file = "/etc/holdfast/agent.token"\n'
	[ ! -f "$R/etc/holdfast/ca.pem" ] || printf 'ca_file = "/etc/holdfast/ca.pem"\n'
	[ -z "$instance" ] || printf 'instance_id_path = "%s"\n' "$(instance_file)"
	if [ -f "$R/etc/holdfast/agent.site.toml" ]; then
		printf '\n'
		cat "$R/etc/holdfast/agent.site.toml"
	fi
}

write_config() { # 0: changed, 1: as it was, 2: not usable, and what was there stays
	if [ -f "$CONFIG" ] && ! grep -qxF "$MARK" "$CONFIG"; then
		say "$CONFIG was not written by Holdfast: left as it is"
		return 1
	fi
	_draft=$R/etc/holdfast/agent.toml.draft
	agent_toml | replace_file "$_draft" 0644 || true
	if ! _problem=$(refused_settings "$_draft"); then
		say "the configuration would not be accepted, nothing changed: $_problem"
		return 2
	fi
	replace_file "$CONFIG" 0644 <"$_draft"
	_result=$?
	rm -f "$_draft"
	return $_result
}
