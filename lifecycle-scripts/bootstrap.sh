#!/bin/sh
# Fetches a bundle and runs its on_create.sh. As EC2 user data: set the two lines below. As a ParallelCluster custom action:
#   CustomActions:
#     OnNodeConfigured:
#       Script: s3://BUCKET/bootstrap.sh
#       Args: [s3://BUCKET/holdfast-bundle.tar.gz, SHA256]
# The bundle is s3://…, https://… or a path (a shared file system). It always exits with 0: the node is more important.
set -u

BUNDLE=${1:-}
SHA256=${2:-}

say() { printf '%s holdfast: %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$*" >&2; }

fetch() { # fetch FROM TO
	case $1 in
	s3://*) timeout 300 aws s3 cp --only-show-errors "$1" "$2" ;;
	https://*)
		if command -v curl >/dev/null 2>&1; then
			curl -fsS --proto '=https' --retry 5 --retry-connrefused -m 300 -o "$2" "$1"
		else
			timeout 300 wget -q -O "$2" "$1"
		fi
		;;
	/*) timeout 300 cp "${HOLDFAST_ROOT:-}$1" "$2" ;;
	*)
		say "a bundle is s3://…, https://… or /PATH, not '$1'"
		return 1
		;;
	esac
}

go() {
	[ -n "$BUNDLE" ] || {
		say "no bundle named: set BUNDLE, or give it as the first argument"
		return 1
	}
	case $SHA256 in *[!0-9a-fA-F]* | '')
		say "no SHA-256 of $BUNDLE: set SHA256, or give it as the second argument (build_bundle.sh prints it)"
		return 1
		;;
	esac
	work=$(mktemp -d "${TMPDIR:-/var/tmp}/holdfast-bundle.XXXXXX") || return 1
	tries=0
	until fetch "$BUNDLE" "$work/bundle.tar.gz"; do # a role's credentials may take a moment after boot
		tries=$((tries + 1))
		[ "$tries" -lt "${HOLDFAST_FETCH_TRIES:-5}" ] || {
			say "could not fetch $BUNDLE"
			return 1
		}
		sleep $((tries * 5))
	done
	if [ "$(sha256sum "$work/bundle.tar.gz" | cut -d' ' -f1)" != "$(printf '%s' "$SHA256" | tr A-F a-f)" ]; then
		say "$BUNDLE is not the bundle with SHA-256 $SHA256: not used"
		return 1
	fi
	tar -xzf "$work/bundle.tar.gz" -C "$work" --no-same-owner && sh "$work/holdfast-bundle/on_create.sh"
}

work=
go || say "Holdfast is not installed; the node continues without it"
[ -z "$work" ] || rm -rf "$work"
exit 0
