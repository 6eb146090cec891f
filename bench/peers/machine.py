"""Owns what a measurement says about its machine: the processor, whether others used it meanwhile, and the record's file."""
import json
import os
import platform
import re
import resource
import signal
import subprocess
import sys
import time

# A share of the machine's time that others may use before nothing is judged.
OTHERS_MAY_USE = 0.05
SPIN_SECONDS = 0.2
SPIN_MAY_TAKE = 1.1 * SPIN_SECONDS
# A short disturbance is waited for; a long one is written down.
TRIES, PAUSE_SECONDS = 3, 2


def end_children_when_killed():
    """Makes SIGTERM an ordinary exit, on which whatever runs is ended too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def describe(threads):
    try:
        with open("/proc/cpuinfo") as info:
            processor = re.search(r"model name\s+: (.*)", info.read())[1]
    except (OSError, TypeError):
        processor = platform.processor()
    return {"processor": processor, "system": platform.platform(), "threads": threads}


def spin():
    """Seconds of wall clock that pass while this process computes for a fixed time of its own."""
    wall, own = time.perf_counter(), time.process_time()
    while time.process_time() - own < SPIN_SECONDS:
        pass
    return time.perf_counter() - wall


def busy(threads):
    """Why the machine cannot be measured on now, or None."""
    for attempt in range(TRIES):
        spinning = [subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE) for _ in range(threads)]
        worst = max(float(each.communicate()[0]) for each in spinning)
        if worst <= SPIN_MAY_TAKE:
            return None
        if attempt + 1 < TRIES:
            time.sleep(PAUSE_SECONDS)
    return f"{SPIN_SECONDS} s of work on each of {threads} threads took {worst:.2f} s"


class Others:
    """Processor time that neither this process nor its finished children used, since it was made. Linux only."""

    def __init__(self):
        self.wall, self.used = time.perf_counter(), self._used()

    @staticmethod
    def _used():
        try:
            with open("/proc/stat") as stat:
                user, nice, system, _, _, irq, softirq, steal = map(int, stat.readline().split()[1:9])
        except OSError:
            return None
        ours = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        everybody = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        return everybody - sum(use.ru_utime + use.ru_stime for use in ours)

    def trouble(self):
        """What others used, if it was too much; else None."""
        if self.used is None:
            return None
        wall = time.perf_counter() - self.wall
        share = (self._used() - self.used) / (wall * os.cpu_count())
        if share > OTHERS_MAY_USE:
            return f"others used {share:.0%} of the machine for {wall:.0f} s"
        return None


def write(path, record):
    """Whole or not at all, so that a run that is killed leaves what it had."""
    with open(path + ".part", "w") as out:
        out.write(json.dumps(record, indent=2) + "\n")
    os.rename(path + ".part", path)


if __name__ == "__main__":
    print(spin())
