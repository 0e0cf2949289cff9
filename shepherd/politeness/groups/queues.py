"""The queue of a site, without an object per item.

An item is one node: 13 bytes in three arrays. A site's items that arrive best first, as a plan does, form a linked list of
nodes; those that arrive out of order wait in a heap beside it, those that are not due yet in another. So every operation is at
worst logarithmic, and the common case costs 13 bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

NO_NODE: Final = 0
NODE_BITS: Final = 32
NODE_MASK: Final = (1 << NODE_BITS) - 1


class SiteQueue:
    """Where the items of one site begin; `Nodes` does everything with it."""

    __slots__ = ("head", "late", "later", "tail")

    def __init__(self) -> None:
        self.head = NO_NODE  # the list of nodes that came in order
        self.tail = NO_NODE
        self.late: list[int] | None = None  # heap of key << 32 | node: came out of order
        self.later: list[int] | None = None  # heap of not_before_ms << 32 | node


class QueueNodes:
    """The nodes of all sites. A key is what an item is ordered by, smallest first, at most 64 bits."""

    def __init__(self) -> None:
        self.keys = array("Q", [0])  # node 0 is no node
        self.sources = array("B", [0])
        self._links = array("I", [NO_NODE])
        self._spare = NO_NODE  # list of unused nodes

    def add(self, queue: SiteQueue, key: int, source: int) -> None:
        """An item that may be taken at once."""
        self._enqueue(queue, self._new(key, source))

    def add_later(self, queue: SiteQueue, key: int, source: int, not_before_ms: int) -> None:
        """An item that `promote` will bring up when its time has come."""
        if queue.later is None:
            queue.later = []
        heappush(queue.later, not_before_ms << NODE_BITS | self._new(key, source))

    def promote(self, queue: SiteQueue, now_ms: int) -> None:
        due = (now_ms + 1) << NODE_BITS
        while queue.later and queue.later[0] < due:
            self._enqueue(queue, heappop(queue.later) & NODE_MASK)

    def best_key(self, queue: SiteQueue) -> int | None:
        """The key of the item that `take` would give."""
        best = self.keys[queue.head] if queue.head else None
        if queue.late:
            late = queue.late[0] >> NODE_BITS
            return late if best is None or late < best else best
        return best

    def take(self, queue: SiteQueue) -> tuple[int, int]:
        """Remove the best item of a queue that has one; its key and source."""
        if queue.late and (not queue.head or queue.late[0] >> NODE_BITS < self.keys[queue.head]):
            node = heappop(queue.late) & NODE_MASK
        else:
            node = queue.head
            queue.head = self._links[node]
        return self._free(node)

    def length(self, queue: SiteQueue) -> int:
        return sum(1 for _ in self._walk(queue))

    def drain(self, queue: SiteQueue) -> list[tuple[int, int]]:
        """Remove all items, due or not; their keys and sources, best first."""
        nodes = list(self._walk(queue))
        queue.head = queue.tail = NO_NODE
        queue.late = queue.later = None
        return sorted(self._free(node) for node in nodes)

    def _enqueue(self, queue: SiteQueue, node: int) -> None:
        key = self.keys[node]
        if not queue.head:
            queue.head = queue.tail = node
        elif key >= self.keys[queue.tail]:
            self._links[queue.tail] = node
            queue.tail = node
        else:
            if queue.late is None:
                queue.late = []
            heappush(queue.late, key << NODE_BITS | node)

    def _walk(self, queue: SiteQueue) -> Iterator[int]:
        node = queue.head
        while node:
            yield node
            node = self._links[node]
        for heap in (queue.late, queue.later):
            for entry in heap or ():
                yield entry & NODE_MASK

    def _new(self, key: int, source: int) -> int:
        node = self._spare
        if not node:
            self.keys.append(key)
            self.sources.append(source)
            self._links.append(NO_NODE)
            return len(self.keys) - 1
        self._spare = self._links[node]
        self.keys[node] = key
        self.sources[node] = source
        self._links[node] = NO_NODE
        return node

    def _free(self, node: int) -> tuple[int, int]:
        self._links[node] = self._spare
        self._spare = node
        return self.keys[node], self.sources[node]
