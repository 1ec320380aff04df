#!/bin/sh
# mend.sh ENVIRONMENT: mend the LocalEmu that is installed there. It fails when the code is not the one that it knows.
#
# A poll takes its task off the queue, then looks for it among all executions: it fails on one that was stored a moment
# ago and has no environment yet, or finds none while the task is queued but not noted. Then the task is lost.
#
# An empty poll is held for 60 s, as AWS does; here for ACTIVITY_POLL_SECONDS, if that is set. A worker that is to leave
# awaits its poll, so each test of a pool that shrinks waits for so long.
set -eu
cd "$1"/lib/python3*/site-packages/localemu/services/stepfunctions

sed -i -e '/def _get_executions(/,/return execution$/{' \
    -e 's/= list(store\.executions\.values())$/= [e for e in list(store.executions.values()) if getattr(e.exec_worker, "env", None)]/' \
    -e 's/^\( *\)store\.executions\.values(),$/\1execution,/' -e '}' provider.py
grep -q '= \[e for e in list(store.executions.values()) if getattr(e.exec_worker, "env", None)\]$' provider.py
grep -A 1 'lambda e: e.exec_status == execution_status,$' provider.py | grep -q '^ *execution,$'

sed -i -e 's/^\( *\)seconds_left = 60$/\1seconds_left = int(__import__("os").environ.get("ACTIVITY_POLL_SECONDS", "60"))/' provider.py
grep -q '^ *seconds_left = int(__import__("os").environ.get("ACTIVITY_POLL_SECONDS", "60"))$' provider.py

cd asl/eval/callback
sed -i -e '/def add_activity_task(/,/return callback_endpoint$/{' \
    -e '/maybe_activity\.add_task(/{h;d}' -e '/return callback_endpoint$/{x;G}' -e '}' callback.py
grep -A 1 '_pool\[callback_id\] = callback_endpoint$' callback.py | grep -q '^ *maybe_activity\.add_task('

"$1/bin/python" -m py_compile callback.py ../../../provider.py
