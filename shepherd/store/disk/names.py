"""Every file name the database may contain is built and parsed here. A name that does not parse is not ours.

Recovery and deletion depend on this: they touch nothing that this module does not recognise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from shepherd.config.last_cf import FILE as LAST_CF
from shepherd.config.places import OWN_CF
from shepherd.formats.control import CLOSED, PHASES
from shepherd.formats.tables import TABLES

LOCK: Final = "lock"
STATES: Final = "state"
INBOX: Final = "inbox"
LEASES: Final = "lease"
LOGS: Final = "log"
CLOCK: Final = "clock"  # in the logs
MIRROR: Final = "mirror"  # which states came from elsewhere
ASIDE: Final = "aside"  # what stood where files belong
TOP: Final = (LOCK, STATES, INBOX, LEASES, LOGS, OWN_CF, LAST_CF, MIRROR, ASIDE, "README.md")

CONTROL: Final = "control"
REPORT: Final = "report.json"
PLAN: Final = "plan"
OBJECTS: Final = "objects"
HARVESTS: Final = "harvest"
NAMES: Final = "names"  # of the sites
EQUIV: Final = "equiv"
CHECK: Final = ".check"
JOURNAL: Final = "journal"
CONTRIB: Final = "contrib"
CHECKPOINTS: Final = "checkpoints"
SCRATCH_TMP: Final = ".scratch.tmp"
_STAGED: Final = ".repair"

_SUFFIXES: Final = "|".join(p for p in PHASES if p != CLOSED)
_STATE: Final = re.compile(rf"([0-9]{{6,}})(?:\.({_SUFFIXES}))?")
_TMP: Final = re.compile(r"[0-9]{6,}\.tmp")
_SCRATCH: Final = re.compile(r"[0-9]{6,}\.scratch")
_NUMBERED: Final = re.compile(r"(contrib|journal)\.([0-9]{8,})")
_SEGMENT: Final = re.compile(r"[0-9]{8,}")
_LOCAL_SEGMENT: Final = re.compile(r"seg\.([0-9]{8,})")
_ITEM: Final = re.compile(r"([0-9]+-[A-Za-z0-9_.-]+-[0-9]+-[0-9]+)\.(req|contrib|feedback|harvest|contact|lease)")
_HALF_ITEM: Final = re.compile(
    r"\.[0-9]+-(?P<host>[A-Za-z0-9_.-]+)-(?P<pid>[0-9]+)-[0-9]+\.(?:req|contrib|feedback|harvest|contact|lease|scratch)\.tmp"
)
_HARVEST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")

# The furthest directory of a number is the one that counts; plan..cork and merge..record use different numbers.
_ORDER: Final = {phase: place for place, phase in enumerate(PHASES)}


@dataclass(frozen=True)
class StateName:
    number: int
    phase: str

    def __str__(self) -> str:
        return f"{self.number:06d}" if self.phase == CLOSED else f"{self.number:06d}.{self.phase}"

    @property
    def closed(self) -> bool:
        return self.phase == CLOSED

    @property
    def order(self) -> tuple[int, int]:
        return self.number, _ORDER[self.phase]


def parse_state(name: str) -> StateName | None:
    match = _STATE.fullmatch(name)
    state = StateName(int(match[1]), match[2] or CLOSED) if match else None
    return state if str(state) == name else None  # 0000125 is not a name that we give


def tmp(number: int) -> str:
    return f"{number:06d}.tmp"


def parse_tmp(name: str) -> int | None:
    """`000126.tmp` -> 126."""
    return int(name[:-4]) if _TMP.fullmatch(name) else None


def scratch(number: int) -> str:
    """The directory of what the program that builds a state puts aside meanwhile."""
    return f"{number:06d}.scratch"


def scratch_beside(item_name: str) -> str:
    """The same for a program without the lock: a name that the next holder of the lock can judge by its host and pid."""
    return f".{item_name}{SCRATCH_TMP}"


def scratch_file(number: int) -> str:
    return f"{number:08d}"


def is_leftover(name: str) -> bool:
    """A directory that was being built, used or deleted when its program died."""
    is_unfinished = _TMP.fullmatch(name) or _SCRATCH.fullmatch(name)
    return bool(is_unfinished) or (name.endswith(".gone") and parse_state(name[:-5]) is not None)


def gone_state(name: StateName) -> str:
    return f"{name}.gone"


def staged(name: str) -> str:
    """A sound copy of a damaged file, beside that file. No leftover: it may be the only one."""
    return f".{name}{_STAGED}"


def is_staged(name: str) -> bool:
    return name.startswith(".") and name.endswith(_STAGED)


def segment(number: int) -> str:
    return f"{number:08d}"


def parse_segment(name: str) -> int | None:
    return int(name) if _SEGMENT.fullmatch(name) and segment(int(name)) == name else None


def local_segment(number: int) -> str:
    return f"seg.{number:08d}"


def parse_local_segment(name: str) -> int | None:
    match = _LOCAL_SEGMENT.fullmatch(name)
    return int(match[1]) if match else None


def contrib(number: int) -> str:
    return f"contrib.{number:08d}"


def journal(number: int) -> str:
    return f"journal.{number:08d}"


def parse_numbered(name: str) -> tuple[str, int] | None:
    """`contrib.00000003` -> ("contrib", 3)."""
    match = _NUMBERED.fullmatch(name)
    return (match[1], int(match[2])) if match else None


def item(time_ms: int, host: str, pid: int, counter: int) -> str:
    """The name of an inbox item or lease: sorts by time, unique on every machine."""
    return f"{time_ms:013d}-{host_part(host)}-{pid}-{counter}"


def host_part(host: str) -> str:
    """The name of a machine as it stands in names of ours."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", host)


def parse_item(name: str) -> tuple[str, str] | None:
    """`NAME.req` -> (NAME, "req")."""
    match = _ITEM.fullmatch(name)
    return (match[1], match[2]) if match else None


def parse_half_item(name: str) -> tuple[str, int] | None:
    """`.NAME.req.tmp`, which somebody is putting in place or was -> the host and pid in NAME."""
    match = _HALF_ITEM.fullmatch(name)
    return (match["host"], int(match["pid"])) if match else None


def is_harvest(name: str) -> bool:
    return bool(_HARVEST.fullmatch(name))


def known_in_state(path: str) -> bool:
    """Whether a path inside a state directory is one that a control may name."""
    first, _, rest = path.partition("/")
    if first in TABLES:
        return rest in TABLES[first] or (first == "sites" and rest == NAMES)
    if first == OBJECTS:
        return parse_segment(rest) is not None
    return not rest and (first in (PLAN, REPORT, EQUIV) or parse_numbered(first) is not None)
