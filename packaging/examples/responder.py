#!/usr/bin/python3
"""Answers fence requests with the outcome of: fence-node ACTION NODE

fence-node is yours to write: exit 0 only when NODE is safe; the last line it prints becomes the
answer's message. It may be run again for a request that a crash cut off, so it must not mind that
its work is done already. Python 3.6, nothing beside it. It polls: that works on every file system,
in every container, and costs a fence a fifth of a second.
"""

import datetime
import fcntl
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time

REQUESTS = os.environ.get("REQUESTS", "/run/fence_recorder/requests")
RESPONSES = os.environ.get("RESPONSES", "/run/fence_recorder/responses")
FENCE_NODE = os.environ.get("FENCE_NODE", "/usr/local/sbin/fence-node")
CLAIMED = os.path.join(REQUESTS, ".claimed")
INTERVAL = 0.2
NAME = re.compile(r"(?P<node>[^/.\x00-\x1f-][^/\x00-\x1f]*)-(?P<id>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\.json")
at_work = set()


def log(text):
    print(text.encode("ascii", "backslashreplace").decode(), file=sys.stderr, flush=True)


def one_of_each(pairs):
    """Refuses an object that says something twice."""
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key is there twice")
    return dict(pairs)


def read_request(name):
    """The claimed request, and its deadline in seconds since 1970; ValueError if it is none."""
    descriptor = os.open(os.path.join(CLAIMED, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, os.stat(REQUESTS).st_uid):
            raise ValueError("not a regular file of root")
        text = file.read(65537)
    if len(text) > 65536:
        raise ValueError("too large")
    request = json.loads(text.decode(), object_pairs_hook=one_of_each)
    match = NAME.fullmatch(name)
    if not isinstance(request, dict) or not match:
        raise ValueError("not named as a request")
    if (request.get("target_node"), request.get("request_id")) != (match.group("node"), match.group("id")):
        raise ValueError("its name does not follow from what is in it")
    if request.get("action") not in ("off", "on", "reboot"):
        raise ValueError("its action is none")
    # fence_dummy gives none: a minute after it was written
    deadline = status.st_mtime + 60
    if isinstance(request.get("deadline"), str):
        deadline = seconds(request["deadline"])
    return request, deadline


def seconds(text):
    """RFC 3339 as seconds since 1970. Before 3.7 Python reads no colon in an offset."""
    text = re.sub(r"(\.\d{1,6})\d*", r"\1", text.replace("Z", "+00:00"))
    text = re.sub(r"([+-]\d\d):(\d\d)$", r"\1\2", text)
    form = "%Y-%m-%dT%H:%M:%S.%f%z" if "." in text else "%Y-%m-%dT%H:%M:%S%z"
    return datetime.datetime.strptime(text, form).timestamp()


def is_claimed(name):
    """An agent that gives up removes its claim."""
    return os.path.lexists(os.path.join(CLAIMED, name))


def sync_directory(path):
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(name, answer):
    """Whole, durable, and never over another answer."""
    temporary = os.path.join(RESPONSES, "." + name + ".tmp")
    if os.path.lexists(temporary):
        os.unlink(temporary)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)
            file.write(json.dumps(answer).encode())
            file.flush()
            os.fsync(descriptor)
        os.link(temporary, os.path.join(RESPONSES, name))
    finally:
        os.unlink(temporary)
    sync_directory(RESPONSES)


def fence(request, deadline):
    """Success and message; the program has until the deadline, and is killed with all it started."""
    left = deadline - time.time()
    if left < 1:
        return False, "too late: nothing was done"
    try:
        child = subprocess.Popen([FENCE_NODE, request["action"], request["target_node"]], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    except OSError as error:
        return False, "{}: {}".format(FENCE_NODE, error)
    try:
        said, _ = child.communicate(timeout=left - 0.5)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return False, "{} did not end in time".format(FENCE_NODE)
    lines = said.decode(errors="replace").strip().splitlines()
    return child.returncode == 0, lines[-1][:4096] if lines else ""


def work(name):
    """Does what a claim asks for."""
    try:
        request, deadline = read_request(name)
    except FileNotFoundError:
        return  # withdrawn
    except (ValueError, OSError) as error:
        log("{} is no request: {}".format(name, error))
        os.makedirs(os.path.join(REQUESTS, ".rejected"), exist_ok=True)
        os.replace(os.path.join(CLAIMED, name), os.path.join(REQUESTS, ".rejected", name))
        return
    # an answer that is there says that the work was done before a crash
    if not os.path.lexists(os.path.join(RESPONSES, name)):
        success, message = fence(request, deadline)
        if not is_claimed(name):
            # nobody waits for the answer, and it could be taken for news
            log("{} of {} was withdrawn".format(request["action"], request["target_node"]))
            return
        publish(name, {"request_id": request["request_id"], "success": success, "message": message,
                       "action_performed": request["action"], "target_node": request["target_node"],
                       "timestamp": datetime.datetime.now(datetime.timezone.utc).isoformat()})
        log("{} of {}: success={} {}".format(request["action"], request["target_node"], success, message))
    try:
        os.unlink(os.path.join(CLAIMED, name))
    except FileNotFoundError:
        pass


def start(name):
    """Works on a claim in a thread of its own: nodes do not wait for each other."""
    if name in at_work:
        return

    def run():
        try:
            work(name)
        except OSError as error:
            log("{}: {}".format(name, error))
        finally:
            at_work.discard(name)
    at_work.add(name)
    threading.Thread(target=run, daemon=True).start()


def look():
    """Claims what is new: whoever renames a request has it."""
    for entry in os.scandir(REQUESTS):
        if not entry.name.startswith(".") and entry.name.endswith(".json") and entry.is_file(follow_symlinks=False):
            try:
                if not is_claimed(entry.name):
                    os.rename(entry.path, os.path.join(CLAIMED, entry.name))
            except FileNotFoundError:
                continue  # withdrawn, or somebody else was first
    for entry in os.scandir(CLAIMED):
        if entry.name.endswith(".json"):
            start(entry.name)


def main():
    os.makedirs(CLAIMED, mode=0o755, exist_ok=True)
    # held for life: other responders, and the agent's responder_check=1, see it
    lock = os.open(os.path.join(REQUESTS, ".responder.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit("another responder serves " + REQUESTS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    log("serving " + REQUESTS)
    while True:
        look()
        time.sleep(INTERVAL)


if __name__ == "__main__":
    main()
