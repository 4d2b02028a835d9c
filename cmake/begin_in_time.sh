#!/bin/sh
# begin_in_time.sh PROGRAM [ARGUMENT…]: runs the program, or exits with 75 where the time $MGPLAN_BEGIN_UNTIL (seconds since 1970) is over.
if [ -n "${MGPLAN_BEGIN_UNTIL:-}" ] && [ "$(date +%s)" -gt "$MGPLAN_BEGIN_UNTIL" ]; then exit 75; fi
exec "$@"
