"""Every program by name: `python -m shepherd.cli NAME ...` runs one, and the links in bin/ come here.

Only the module of the named program is imported. setup.cfg lists the same programs as entry points.
"""

from __future__ import annotations

import importlib
import sys

PROGRAMS: dict[str, str] = {
    "gather": "shepherd.cli.gather.main:main",
    "reapd": "shepherd.cli.reapd:main",
    "shep": "shepherd.cli.shep.main:main",
    "shep-check": "shepherd.cli.check:main",
    "shep-cleanup": "shepherd.cli.phases.cleanup:main",
    "shep-cork": "shepherd.cli.phases.cork:main",
    "shep-dump": "shepherd.cli.dump.main:main",
    "shep-equiv": "shepherd.cli.phases.equiv:main",
    "shep-export": "shepherd.cli.export.main:main",
    "shep-feedback": "shepherd.cli.phases.feedback:main",
    "shep-import": "shepherd.cli.warc_import:main",
    "shep-init": "shepherd.cli.init:main",
    "shep-keys": "shepherd.cli.keys:main",
    "shep-merge": "shepherd.cli.phases.merge:main",
    "shep-mirror": "shepherd.cli.mirror:main",
    "shep-plan": "shepherd.cli.phases.plan:main",
    "shep-rank": "shepherd.cli.phases.rank:main",
    "shep-reap": "shepherd.cli.phases.reap:main",
    "shep-record": "shepherd.cli.phases.record:main",
    "shep-recover": "shepherd.cli.recover:main",
    "shep-select": "shepherd.cli.phases.select:main",
    "shep-serve": "shepherd.cli.serve:main",
    "shep-toyweb": "shepherd.cli.toyweb:main",
    "shep-upgrade": "shepherd.cli.upgrade:main",
    "shepherd": "shepherd.cli.master:main",
}


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in PROGRAMS:
        print(f"usage: python -m shepherd.cli NAME ..., where NAME is one of {', '.join(PROGRAMS)}", file=sys.stderr)
        raise SystemExit(2)
    sys.argv = [name, *sys.argv[2:]]
    module, _, function = PROGRAMS[name].partition(":")
    getattr(importlib.import_module(module), function)()


if __name__ == "__main__":
    main()
