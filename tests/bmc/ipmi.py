"""A BMC of pyghmi's that keeps boot flags; a file says which faults it has.

Usage: ipmi.py DIRECTORY PORT. In DIRECTORY knobs.json, which is read at every request, says what is odd;
commands.log gets a line for every change of power.
"""

import json
import os
import sys

import pyghmi.ipmi.bmc as bmc

DIRECTORY, PORT = sys.argv[1], int(sys.argv[2])
ONLY_NEXT = 0b01000000


def knobs():
    try:
        with open(os.path.join(DIRECTORY, "knobs.json")) as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


class Bmc(bmc.Bmc):
    power, flags = "on", [0, 0, 0, 0, 0]

    def change(self, command, power):
        with open(os.path.join(DIRECTORY, "commands.log"), "a") as log:
            log.write(command + "\n")
        if "refuse" in knobs():
            return 0xD5
        if not knobs().get("deaf"):
            self.power = power
            if power == "on" and not self.flags[0] & ONLY_NEXT:
                self.flags = [0, 0, 0, 0, 0]
        return 0

    def get_power_state(self):
        return self.power

    def power_on(self):
        return self.change("on", "on")

    def power_off(self):
        return self.change("off", "off")

    def power_shutdown(self):
        return self.change("soft", "off")

    def power_cycle(self):
        return self.change("cycle", "on") if self.power == "on" else 0xD5

    def power_reset(self):
        return self.change("reset", "on") if self.power == "on" else 0xD5

    def set_system_boot_options(self, request, session):
        if request["data"][0] != 5:
            return session.send_ipmi_response()
        if "refuse" in knobs():
            return session.send_ipmi_response(code=0xCC)
        if not knobs().get("deaf"):
            self.flags = list(request["data"][1:6])
        return session.send_ipmi_response()

    def get_system_boot_options(self, request, session):
        if request["data"][0] == 5:
            return session.send_ipmi_response(data=[1, 5] + self.flags)
        return session.send_ipmi_response(code=0x80)


Bmc({"admin": "s3cret"}, port=PORT, address="127.0.0.1").listen()
