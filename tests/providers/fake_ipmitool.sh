#!/bin/sh
# ipmitool as far as docs/examples/provider-ipmi.sh uses it; one file per BMC in $FAKE_BMCS holds on or off, or what it fails with.
set -eu
printf '%s\n' "$*" >>"$FAKE_BMCS/calls"
bmc=
while [ "$1" != chassis ]; do
	case $1 in
	-H) bmc=$2 && shift ;;
	-f) [ -r "$2" ] || exit 1 && shift ;;
	-I | -U | -N | -R) shift ;;
	esac
	shift
done
[ "$1 $2" = "chassis power" ]
read -r now <"$FAKE_BMCS/$bmc"
[ "$3" = status ] || [ ! -e "$FAKE_BMCS/refuses" ] || { echo busy >&2 && exit 1; }
case "$now $3" in
'on status' | 'off status') echo "Chassis Power is $now" ;;
'on cycle') echo "Chassis Power Control: Cycle" ;;
'off cycle') echo "Set Chassis Power Control to Cycle failed: Command not supported in present state" >&2 && exit 1 ;;
'off on' | 'on on') echo on >"$FAKE_BMCS/$bmc" && echo "Chassis Power Control: Up/On" ;;
*) echo "$now" >&2 && exit 1 ;;
esac
