#!/bin/sh
# Holdfast's provider "command" for machines with a BMC: status and reboot (a power cycle) by ipmitool.
# The contract is in docs/providers.md. Copy it, change it, and name it in controller.toml:
#
#   [provider]
#   kind = "command"
#   command = ["/etc/holdfast/provider-ipmi.sh"]
#
# HOLDFAST_IPMI_HOSTS     lines "NODE BMC [INSTANCE_ID]", # begins a comment; without an id the node's name is the id.
#                         Give agents the same id (instance_id_path in agent.toml).
# HOLDFAST_IPMI_USER, HOLDFAST_IPMI_PASSWORD_FILE   an account of the BMCs that may cycle power (OPERATOR)
# HOLDFAST_IPMI_STATE     folder that remembers which reboots were done; writable by the actor
set -eu

hosts=${HOLDFAST_IPMI_HOSTS:-/etc/holdfast/actor/ipmi-hosts}
user=${HOLDFAST_IPMI_USER:-holdfast}
password_file=${HOLDFAST_IPMI_PASSWORD_FILE:-/etc/holdfast/actor/ipmi-password}
state=${HOLDFAST_IPMI_STATE:-/var/lib/holdfast/ipmi}

verb=${1:-} node=${2:-} instance=${3:-} token=${4:-}

rejected=110 not_found=111 not_permitted=112 unavailable=115

fail() { # STATUS TEXT: the last line of standard error is the reason that Holdfast shows
	printf '%s\n' "$2" >&2
	exit "$1"
}

find_machine() { # by node or instance id: sets node, bmc, instance; fails when the list has no such machine
	[ -r "$hosts" ] || fail "$unavailable" "cannot read $hosts"
	while read -r name address id _; do
		case $name in '' | '#'*) continue ;; esac
		case $id in '' | '#'*) id=$name ;; esac
		if [ "$name" = "$node" ] || { [ -z "$node" ] && [ "$id" = "$instance" ]; }; then
			node=$name bmc=$address instance=$id
			return 0
		fi
	done <"$hosts"
	return 1
}

ipmi() { # its answer in $said; an error that only the operator can end is no BMC that is away
	said=$(ipmitool -I lanplus -H "$bmc" -U "$user" -f "$password_file" -N 2 -R 2 "$@" 2>&1 </dev/null) && return 0
	said=$(printf '%s' "$said" | tail -n 1)
	case $said in
	*'HMAC is invalid'* | *'nauthorized name'* | *'nsufficient privilege'*) problem=$not_permitted ;;
	*) problem=$unavailable ;;
	esac
	return 1
}

power() { # sets power to on or off
	ipmi chassis power status || fail "$problem" "BMC $bmc of $node: $said"
	case $said in
	*'Chassis Power is on'*) power=on ;;
	*'Chassis Power is off'*) power=off ;;
	*) fail "$unavailable" "BMC $bmc of $node: no power state in: $said" ;;
	esac
}

case $verb in
capabilities)
	printf '{"contract": 1, "verbs": ["status", "reboot"], "power_off_confirmed": true}\n'
	;;
status)
	if [ -z "$node$instance" ] || ! find_machine; then # asked by token: nothing is launched or replaced here
		printf '{"machine": null}\n'
		exit 0
	fi
	power
	case $power in on) shown=running ;; *) shown=stopped ;; esac
	printf '{"machine": {"instance_id": "%s", "node": "%s", "state": "%s"}}\n' "$instance" "$node" "$shown"
	;;
reboot)
	find_machine || fail "$not_found" "$hosts has no machine $instance"
	power
	# The mark goes first: of two calls with one token only one cycles the power, whatever becomes of the other.
	mark=$state/reboot-$token
	[ -z "$token" ] || mkdir -p "$state" 2>/dev/null || : # a failure shows below
	if [ -n "$token" ] && ! mkdir "$mark" 2>/dev/null; then
		[ -d "$mark" ] || fail "$unavailable" "cannot write to $state"
		printf '{}\n'
		exit 0
	fi
	case $power in on) how=cycle ;; *) how=on ;; esac
	if ! ipmi chassis power "$how"; then
		[ -z "$token" ] || rmdir "$mark"
		fail "$problem" "BMC $bmc of $node: $said"
	fi
	printf '{}\n'
	;;
*)
	fail "$rejected" "no verb $verb here"
	;;
esac
