"""Check the histories named on the command line; ends with 1 where something must not have happened."""

from __future__ import annotations

import sys

from checker import check, read_histories


def main(paths: list[str]) -> int:
    if not paths:
        print("usage: python -m checker history.jsonl...", file=sys.stderr)
        return 2
    report = check(read_histories(paths))
    print(report)
    return 0 if report.clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
