"""sushy-tools' emulator; changes land at once, and a file says which faults it has.

Usage: redfish.py DIRECTORY PORT. In DIRECTORY are cert.pem, key.pem and htpasswd; knobs.json, which is
read at every request, says what is odd; requests.log gets a line for every request.
"""

import base64
import datetime
import json
import os
import random
import re
import ssl
import sys
import time

DIRECTORY, PORT = sys.argv[1], int(sys.argv[2])

from sushy_tools import error  # noqa: E402
from sushy_tools.emulator import main as emulator  # noqa: E402
from sushy_tools.emulator.resources.systems import fakedriver  # noqa: E402

FakeDriver = fakedriver.FakeDriver
SESSIONS = "/redfish/v1/SessionService/Sessions"
TASK = "/redfish/v1/TaskService/Tasks/1"
SYSTEMS = [
    ("11111111-1111-1111-1111-111111111111", "node1"),
    ("22222222-2222-2222-2222-222222222222", "node2"),
    ("33333333-3333-3333-3333-333333333333", "twin"),
    ("44444444-4444-4444-4444-444444444444", "twin"),
] + [(f"55555555-5555-5555-5555-{number:012}", f"many{number}") for number in range(20)]

state = {"restarted": None, "looks": 0, "token": None}


def knobs():
    try:
        with open(os.path.join(DIRECTORY, "knobs.json")) as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


change_power = FakeDriver.set_power_state


def set_power_state(self, identity, kind):
    odd = knobs()
    if kind in odd.get("refuse", []):
        raise error.NotSupportedError(f"Power state {kind} is not supported")
    if odd.get("deaf"):
        return
    if odd.get("reset_time") and "Restart" in kind:
        state["restarted"] = datetime.datetime.now(datetime.timezone.utc).isoformat()
        return
    # off has to be there for a while to be seen
    delay = 2 if "Restart" in kind or kind == "PowerCycle" else 0
    random.randint = lambda low, high: delay
    change_power(self, identity, "ForceRestart" if kind == "PowerCycle" else kind)


FakeDriver.set_power_state = set_power_state


def change_system(system, odd):
    if "allow" in odd:
        system["Actions"]["#ComputerSystem.Reset"]["ResetType@Redfish.AllowableValues"] = odd["allow"]
    if odd.get("reset_time"):
        system["LastResetTime"] = state["restarted"] or "2026-01-01T00:00:00+00:00"
    if "boot" in odd:
        system["Boot"].update(odd["boot"])
    if "power" in odd:
        system["PowerState"] = odd["power"]


@emulator.app.before_request
def before():
    odd, path, method = knobs(), emulator.flask.request.path, emulator.flask.request.method
    for rule in odd.get("answers", []):
        if method == rule.get("method", method) and re.fullmatch(rule["path"], path):
            time.sleep(rule.get("delay", 0))
            headers = {"Content-Type": "application/json", **rule.get("headers", {})}
            if "pad" in rule:
                return "x" * rule["pad"], rule.get("status", 200), headers
            return rule.get("body", ""), rule.get("status", 200), headers
    if path == TASK and "task" in odd:
        state["looks"] += 1
        running = state["looks"] < 2
        task = {"TaskState": "Running" if running else odd["task"], "Messages": [{"Message": "it burns"}]}
        return json.dumps(task), 200, {"Content-Type": "application/json"}
    if method == "PATCH" and odd.get("ignore_boot"):
        return "", 204
    return None


@emulator.app.after_request
def after(response):
    odd, request = knobs(), emulator.flask.request
    if "task" in odd and request.method == "POST" and response.status_code == 204:
        state["looks"] = 0
        response.status_code = 202
        response.headers["Location"] = TASK
    if request.method == "GET" and re.fullmatch("/redfish/v1/Systems/[^/]+", request.path) and response.status_code == 200:
        system = json.loads(response.get_data())
        change_system(system, odd)
        response.set_data(json.dumps(system))
    return response


class Door:
    """Writes down every request; wants a session instead of a password, if it is told so."""

    def __init__(self, inner):
        self.inner = inner

    def __call__(self, env, start_response):
        path, method = env["PATH_INFO"], env["REQUEST_METHOD"]
        with open(os.path.join(DIRECTORY, "requests.log"), "a") as log:
            log.write(f"{method} {path}\n")
        if knobs().get("session"):
            return self.with_session(env, start_response, path, method)
        return self.inner(env, start_response)

    def with_session(self, env, start_response, path, method):
        if method == "POST" and path == SESSIONS:
            body = json.loads(env["wsgi.input"].read(int(env["CONTENT_LENGTH"])))
            if body != {"UserName": "admin", "Password": "s3cret"}:
                return self.refuse(start_response)
            state["token"] = str(time.time())
            start_response("201 Created", [("X-Auth-Token", state["token"]), ("Location", SESSIONS + "/1")])
            return [b"{}"]
        if path.rstrip("/") != "/redfish/v1":
            if env.get("HTTP_X_AUTH_TOKEN") != (state["token"] or "none"):
                return self.refuse(start_response)
            if method == "DELETE":
                state["token"] = None
                start_response("204 No Content", [])
                return [b""]
        env["HTTP_AUTHORIZATION"] = "Basic " + base64.b64encode(b"admin:s3cret").decode()
        return self.inner(env, start_response)

    def refuse(self, start_response):
        start_response("401 Unauthorized", [("Content-Type", "application/json")])
        return [b'{"error": {"message": "no"}}']


def main():
    path = lambda name: os.path.join(DIRECTORY, name)  # noqa: E731
    emulator.app.config.update(
        SUSHY_EMULATOR_STATE_DIR=path("emulator"),
        SUSHY_EMULATOR_FAKE_DRIVER=True,
        SUSHY_EMULATOR_FAKE_SYSTEMS=[
            {"uuid": uuid, "name": name, "power_state": "On", "external_notifier": False, "nics": []}
            for uuid, name in SYSTEMS
        ],
        SUSHY_EMULATOR_AUTH_FILE=path("htpasswd"),
    )
    emulator.app.configure()
    emulator.app.wsgi_app = Door(emulator.app.wsgi_app)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path("cert.pem"), path("key.pem"))
    emulator.app.run(host="127.0.0.1", port=PORT, ssl_context=context, threaded=True)


if __name__ == "__main__":
    main()
