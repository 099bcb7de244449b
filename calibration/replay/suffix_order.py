"""Which child of a suffix tree's node comes first: most often seen, with the ties of arctic-inference's linked list.

The list is kept in order of decreasing count. Children of equal count form a group. A new child goes to the end. When a
child is seen again it leaves its group and goes before the head of the group of its previous sibling: so the head of a
group becomes the head of the next larger one, any other member becomes its last. When an occurrence is evicted, its
child goes to the head of the next smaller group. Source: arctic-inference 0.1.1, csrc/suffix_decoding/suffix_tree.cc.
"""

from collections.abc import Sequence

NONE = -1  # no child, no position; tokens and positions count from 0


class Children:
    """The children of one node, by token."""

    __slots__ = ("after", "before", "count", "first", "head", "last")

    def __init__(self) -> None:
        """No child yet."""
        self.count: dict[int, int] = {}
        self.before: dict[int, int] = {}
        self.after: dict[int, int] = {}
        self.head: dict[int, int] = {}  # first child of each count
        self.first = NONE
        self.last = NONE

    def add(self, child: int) -> None:
        """One more occurrence of `child`."""
        count = self.count.get(child)
        if count is None:
            self._append(child)
            return
        previous = self.before[child]
        if previous == NONE or self.count[previous] > count + 1:
            self._leave_group(child, count)
            self.head[count + 1] = child
            self.count[child] = count + 1
            return
        target = self.head[self.count[previous]]
        self._unlink(child, count)
        self._insert_before(child, count + 1, target)

    def remove(self, child: int) -> None:
        """One occurrence of `child` less."""
        count, following = self.count[child], self.after[child]
        if count == 1:
            self._unlink(child, count)
            del self.count[child]
        elif following == NONE or self.count[following] < count:
            self._leave_group(child, count)
            self.head[count - 1] = child
            self.count[child] = count - 1
        else:
            while following != NONE and self.count[following] == count:
                following = self.after[following]
            self._unlink(child, count)
            self._insert_before(child, count - 1, following)

    def _append(self, child: int) -> None:
        last = self.last
        self.count[child] = 1
        self.before[child], self.after[child] = last, NONE
        if last == NONE:
            self.first = child
        else:
            self.after[last] = child
        if last == NONE or self.count[last] != 1:
            self.head[1] = child
        self.last = child

    def _leave_group(self, child: int, count: int) -> None:
        """Takes `child` out of the group of its count; the list itself is not changed."""
        if self.head[count] != child:
            return
        following = self.after[child]
        if following != NONE and self.count[following] == count:
            self.head[count] = following
        else:
            del self.head[count]

    def _unlink(self, child: int, count: int) -> None:
        self._leave_group(child, count)
        before, after = self.before[child], self.after[child]
        if before == NONE:
            self.first = after
        else:
            self.after[before] = after
        if after == NONE:
            self.last = before
        else:
            self.before[after] = before

    def _insert_before(self, child: int, count: int, target: int) -> None:
        """Puts `child` before `target`, or at the end, with its new count; it joins a group of that count beside it."""
        before = self.last if target == NONE else self.before[target]
        self.count[child] = count
        self.before[child], self.after[child] = before, target
        if before == NONE:
            self.first = child
        else:
            self.after[before] = child
        if target == NONE:
            self.last = child
        else:
            self.before[target] = child
        if before == NONE or self.count[before] != count:
            self.head[count] = child


def first_children(children: Sequence[int], positions: Sequence[int]) -> list[int]:  # noqa: C901 - written out
    """After each occurrence of a node, the last position at which its first child followed.

    `children` holds the token that followed each occurrence. The same as `Children.add` for each of them, written out:
    it runs a few times for every token of a replay.
    """
    count: dict[int, int] = {}
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    head: dict[int, int] = {}
    latest: dict[int, int] = {}
    first = last = NONE
    found: list[int] = []
    for child, position in zip(children, positions, strict=True):
        latest[child] = position
        seen = count.get(child)
        if seen is None:
            count[child], before[child], after[child] = 1, last, NONE
            if last == NONE:
                first = head[1] = child
            else:
                after[last] = child
                if count[last] != 1:
                    head[1] = child
            last = child
            found.append(latest[first])
            continue
        previous, following, more = before[child], after[child], seen + 1
        if head[seen] == child:
            if following != NONE and count[following] == seen:
                head[seen] = following
            else:
                del head[seen]
        count[child] = more
        if previous == NONE or count[previous] > more:
            head[more] = child
            found.append(latest[first])
            continue
        target = head[count[previous]]
        after[previous] = following
        if following == NONE:
            last = previous
        else:
            before[following] = previous
        previous = before[target]
        before[child], after[child], before[target] = previous, target, child
        if previous == NONE:
            first = head[more] = child
        else:
            after[previous] = child
            if count[previous] != more:
                head[more] = child
        found.append(latest[first])
    return found


def first_children_evicting(
    children: Sequence[int], positions: Sequence[int], evicted_before: Sequence[int]
) -> list[int]:
    """As `first_children`, one entry per event: occurrence i comes after the first `evicted_before[i]` are evicted.

    A child of -1 is none: the sequence ends there; -1 is returned where no child is left. After the last occurrence the
    others are evicted one by one: twice as many entries as occurrences.
    """
    node, latest, found, gone = Children(), {NONE: NONE}, [], 0
    for index, number in enumerate([*evicted_before, len(children)]):
        for child in children[gone:number]:
            if child != NONE:
                node.remove(child)
            found.append(latest[node.first])
        gone = max(gone, number)
        if index < len(children):
            if children[index] != NONE:
                node.add(children[index])
                latest[children[index]] = positions[index]
            found.append(latest[node.first])
    return found
