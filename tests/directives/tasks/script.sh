#!/bin/sh
# Exits with the status of the directive that the payload names.
how=$(cat)
case "$how" in
  *snooze*) echo 6000; exit "$GRAPHILE_WORKER_EXIT_SNOOZE" ;;
  *retry_in*) echo busy >&2; echo 6000; exit "$GRAPHILE_WORKER_EXIT_RETRY" ;;
  *fail_last*) echo broken >&2; exit 1 ;;
  *give_up*) echo "no way" >&2; exit "$GRAPHILE_WORKER_EXIT_GIVE_UP" ;;
esac
