#!/bin/bash
# Answers fence requests with the outcome of: fence-node ACTION NODE
#
# fence-node is yours to write: exit 0 only when NODE is safe; the last line it prints becomes the
# answer's message. It may be run again for a request that a crash cut off, so it must not mind that
# its work is done already. Run this as root; it needs bash, inotify-tools, jq and GNU coreutils.
set -u
requests=${REQUESTS:-/run/fence_recorder/requests}
responses=${RESPONSES:-/run/fence_recorder/responses}
fence_node=${FENCE_NODE:-/usr/local/sbin/fence-node}
claimed=$requests/.claimed

log() { printf '%s\n' "$*" >&2; }

# The deadline of the claim $1 in seconds since 1970; without one (fence_dummy), a minute after it was written.
deadline_of() {
  local deadline
  deadline=$(jq -r '.deadline // empty' "$1") && [[ -n $deadline ]] && date -d "$deadline" +%s && return
  echo $(($(stat -c %Y "$1") + 60))
}

# Publishes the answer to $1 (about node $2, action $3, success $4, message $5): whole, durable, and never over another.
publish() {
  local name=$1 temporary=$responses/.$1.tmp id=${1: -41:36}
  jq -n --arg id "$id" --arg node "$2" --arg action "$3" --argjson success "$4" --arg message "$5" \
    --arg now "$(date --iso-8601=seconds)" '{request_id: $id, success: $success, message: $message,
      action_performed: $action, target_node: $node, timestamp: $now}' >"$temporary" &&
    chmod 0644 "$temporary" && sync "$temporary" && ln -T "$temporary" "$responses/$name" && sync "$responses"
  local result=$?
  rm -f "$temporary"
  return $result
}

# Does what the claim $1 asks for.
work() {
  local name=$1 claim=$claimed/$1 field node action message success=false deadline
  mapfile -t field < <(jq -r '.request_id, .target_node, .action | strings' "$claim" 2>/dev/null)
  node=${field[1]-} action=${field[2]-}
  if [[ ${#field[@]} != 3 || $name != "$node-${field[0]}.json" || ! $action =~ ^(off|on|reboot)$ ]]; then
    log "$name is no request"
    mkdir -p "$requests/.rejected" && mv "$claim" "$requests/.rejected/"
    return
  fi
  deadline=$(deadline_of "$claim")
  # an answer that is there says that the work was done before a crash
  if [[ ! -e $responses/$name ]]; then
    if (($(date +%s) >= deadline - 1)); then
      message="too late: nothing was done"
    elif [[ ! -e $claim ]]; then
      return # withdrawn
    else
      message=$(timeout $((deadline - $(date +%s))) "$fence_node" "$action" "$node" 2>&1 | tail -n 1; exit "${PIPESTATUS[0]}") &&
        success=true
    fi
    # a claim that is gone was withdrawn: nobody waits for the answer, and it could be taken for news
    [[ -e $claim ]] || { log "$action of $node was withdrawn"; return; }
    publish "$name" "$node" "$action" "$success" "$message" || { log "the answer to $name can't be written"; return; }
    log "$action of $node: success=$success $message"
  fi
  rm -f "$claim"
}

# Claims the request $1: whoever renames it has it.
serve() {
  [[ -f $requests/$1 && ! -L $requests/$1 ]] || return
  mv -nT "$requests/$1" "$claimed/$1" 2>/dev/null && [[ ! -e $requests/$1 && -e $claimed/$1 ]] && work "$1" &
}

exec {lock}>>"$requests/.responder-sh.lock" && flock -n "$lock" || { log "another one runs"; exit 1; }
mkdir -p "$claimed"
shopt -s nullglob
# it says when it watches, and only then is looked at what is there already: nothing falls in between
exec {news}< <(exec inotifywait --monitor --event moved_to,close_write --format %f "$requests" 2>&1 {lock}>&-)
watcher=$!
trap 'kill $watcher; exit 0' TERM INT
while :; do
  # bash may overlook a signal that comes just before it waits: not for longer than this
  IFS= read -r -t 2 -u "$news" name || { (($? > 128)) && continue || break; }
  case $name in
    "Watches established.")
      for claim in "$claimed"/*.json; do work "${claim##*/}" & done
      for request in "$requests"/*.json; do serve "${request##*/}"; done
      log "serving $requests"
      ;;
    .*) ;;
    *.json) serve "$name" ;;
  esac
done
log "the watch ended"
exit 1
