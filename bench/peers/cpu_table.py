#!/usr/bin/env python3
"""Owns the table that the README shows of a record of cpu.py.

    python3 bench/peers/cpu_table.py bench/records/cpu.json
"""
import json
import statistics
import sys

PEERS = ("llama.cpp", "OpenVINO GenAI", "OpenVINO f32")
BUSY = "no verdict, the machine was busy"
# Of what memory gave at one end of a run, at the other.
STEADY = 0.8


def table(record):
    """Markdown. Last what decode read of what memory gave."""
    title = f"{record['machine']['threads']} threads of {record['machine']['processor']}"
    lines = [f"| {title} | Mettle | {' | | '.join(PEERS)} | | memory read |", "|---" * (3 + 2 * len(PEERS)) + "|"]
    for name, row in record["rows"].items():
        if "not measured" in row:
            lines.append(line(name, f"not measured: {row['not measured']}", *[""] * (2 * len(PEERS) + 1)))
        elif "median_seconds" in row:
            lines.append(line(heading(row, row["title"]), *cells(row, row["median_seconds"], "s"), ""))
        else:
            for phase, speeds in row["best_tokens_per_second"].items():
                can_say = phase == "decode" and not row[BUSY]
                read = shares(row.get("decode_read", [])) if can_say else ""
                title = row["titles"][phase]
                if "of_rate" in row:
                    title += " (%.0f %% of the rate of %d in turn)" % (100 * row["of_rate"]["median_share"], row["of_rate"]["tokens"])
                lines.append(line(heading(row, title), *cells(row, speeds, "tok/s"), read))
    lines += ["", "Memory: what decode read, of the more that `mettle bench latency --memory` measured right before and after it: median, least and most."]
    lines += [f"{peer}: {described(about)}." for peer, about in record["peers"].items() if "f32" not in peer]
    return "\n".join(lines)


def shares(reads):
    """Of the decodes during which memory gave about the same before and after."""
    steady = [read for read in reads if min(read["of"]) > STEADY * max(read["of"])]
    if not steady:
        return ""
    found = sorted(read["bytes_per_second"] / max(read["of"]) for read in steady)
    memory = sorted(max(read["of"]) / 1e9 for read in steady)
    between = f"{found[0]:.0%} to {found[-1]:.0%}, " if len(found) > 1 else ""
    return f"{statistics.median(found):.0%} ({between}{memory[0]:.0f} to {memory[-1]:.0f} GB/s)"


def line(*cells):
    return f"| {' | '.join(cells)} |"


def heading(row, title):
    return f"{title} (busy, no verdict)" if row[BUSY] else title


def cells(row, values, unit):
    """Mettle's figure, then each peer's and how many times better Mettle's is."""
    ours = values["mettle"]
    yield shown(ours, unit)
    for peer in PEERS:
        theirs = values.get(peer)
        ratio = "" if theirs is None or row[BUSY] else f"{theirs / ours if unit == 's' else ours / theirs:.1f}x"
        yield from (shown(theirs, unit) if theirs else "-", ratio)


def shown(value, unit):
    digits = 2 if unit == "s" else 0 if value >= 100 else 1
    return f"{value:.{digits}f} {unit}"


def described(about):
    if "absent" in about:
        return f"absent ({about['absent']})"
    return ", ".join(f"{value}" if what == "package" else f"{what} {value}" for what, value in about.items())


if __name__ == "__main__":
    with open(sys.argv[1]) as record:
        print(table(json.load(record)))
