"""Suffix decoding against a naive tree, and against what arctic-inference itself drafted."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from calibration.replay.recording import Recording, recording
from calibration.replay.suffix import SuffixSettings, suffix_drafts
from calibration.replay.suffix_order import Children, first_children

RECORDED = Path(__file__).parent.parent.parent / "data" / "replay" / "suffix_arctic_0.1.1.json"


@dataclass
class Node:
    """A node of a suffix tree, one token each; children in the order of arctic-inference's list."""

    count: int = 0
    children: dict[int, "Node"] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)

    def enter(self, token: int) -> "Node":
        child = self.children.setdefault(token, Node())
        counts = [self.children[other].count for other in self.order]
        if token not in self.order:
            self.order.append(token)
        else:
            place = self.order.index(token)
            if place and counts[place - 1] <= child.count + 1:
                self.order.insert(counts.index(counts[place - 1]), self.order.pop(place))
        child.count += 1
        return child

    def leave(self, token: int) -> "Node":
        child = self.children[token]
        counts = [self.children[other].count for other in self.order]
        place = self.order.index(token)
        last = max(index for index, count in enumerate(counts) if count == child.count)
        self.order.insert(last, self.order.pop(place))
        child.count -= 1
        if not child.count:
            self.order.remove(token)
        return child


class Tree:
    """All suffixes of some sequences, cut to a depth."""

    def __init__(self, depth: int) -> None:
        self.root, self.depth, self.sequences = Node(), depth, dict[int, list[int]]()

    def append(self, name: int, token: int) -> None:
        tokens = self.sequences.setdefault(name, [])
        tokens.append(token)
        for start in range(max(len(tokens) - self.depth, 0), len(tokens)):
            node = self.root
            for earlier in tokens[start:-1]:
                node = node.children[earlier]
            node.enter(token)

    def remove(self, name: int) -> None:
        tokens = self.sequences.pop(name, [])
        for start in range(len(tokens)):
            node = self.root
            for token in tokens[start : start + self.depth]:
                node = node.leave(token)

    def find(self, tokens: Sequence[int]) -> Node | None:
        node = self.root
        for token in tokens:
            if token not in node.children or not node.children[token].count:
                return None
            node = node.children[token]
        return node

    def draft(self, known: Sequence[int], limit: int, settings: SuffixSettings) -> tuple[np.float32, list[int]]:
        best, pattern = (np.float32(0), list[int]()), list(known)[-settings.max_tree_depth :]
        for length in range(1, len(pattern)):
            node = self.find(pattern[-length:])
            if node is None:
                break
            longest = min(limit, int(np.float32(length) * np.float32(settings.max_spec_factor) + 1e-6))
            chance, score, path = np.float32(1), np.float32(0), list[int]()
            while len(path) < longest and node.order:
                child = node.children[node.order[0]]
                chance = chance * (np.float32(child.count) / np.float32(node.count))
                if chance < np.float32(settings.min_token_prob):
                    break
                path.append(node.order[0])
                score, node = score + chance, child
            if score >= best[0]:
                best = (score, path)
        return best


def naive(requests: Sequence[Recording], settings: SuffixSettings, k: int) -> list[tuple[int, int]]:
    """Drafted and right tokens at every decode position, with trees that grow token by token."""
    shared, found = Tree(settings.max_tree_depth), []
    cached: list[int] = []
    for name, request in enumerate(requests):
        own = Tree(settings.max_tree_depth)
        for token in request.prompt.tolist():
            own.append(0, token)
        if settings.max_cached_requests:
            cached.append(name)
            while 0 < settings.max_cached_requests < len(cached):
                shared.remove(cached.pop(0))
        known, output = request.prompt.tolist(), request.output.tolist()
        for index, token in enumerate(output):
            known.append(token)
            own.append(0, token)
            if settings.max_cached_requests:
                shared.append(name, token)
            rest = output[index + 1 :]
            if rest:
                limit = k if settings.max_model_len is None else min(k, settings.max_model_len - len(known) - 1)
                found.append(judged(known, rest, (own, shared), max(limit, 0), settings))
    return found


def judged(
    known: list[int], rest: list[int], trees: tuple[Tree, Tree], limit: int, settings: SuffixSettings
) -> tuple[int, int]:
    ours, theirs = (tree.draft(known, limit, settings) for tree in trees)
    path = ours[1] if ours[0] >= theirs[0] else theirs[1]
    right = 0
    while right < min(len(path), len(rest) - 1) and path[right] == rest[right]:
        right += 1
    return len(path), right


def replayed(requests: Sequence[Recording], settings: SuffixSettings, k: int, k_max: int) -> list[tuple[int, int]]:
    found = []
    for _, drafts in suffix_drafts(requests, settings, k_max):
        drafted, right = drafts.at(k)
        found += list(zip(drafted.tolist(), right.tolist(), strict=True))
    return found


@st.composite
def texts(draw: st.DrawFn, longest: int) -> list[int]:
    tokens = draw(st.lists(st.integers(0, draw(st.integers(0, 4))), max_size=longest))
    for _ in range(draw(st.integers(0, 3))):
        if tokens:
            start = draw(st.integers(0, len(tokens) - 1))
            tokens += tokens[start : start + draw(st.integers(1, 12))]
    return tokens[:longest]


settings_of = st.builds(
    SuffixSettings,
    max_tree_depth=st.sampled_from((2, 3, 6, 24)),
    max_spec_factor=st.sampled_from((0.0, 0.5, 0.7, 1.0, 3.3)),
    min_token_prob=st.sampled_from((0.0, 0.1, 0.34, 0.5, 1.0)),
    max_cached_requests=st.sampled_from((-1, 0, 1, 2, 10_000)),
    max_model_len=st.one_of(st.none(), st.integers(2, 60)),
)


@given(st.lists(st.tuples(texts(15), texts(30)), min_size=1, max_size=5), settings_of, st.integers(1, 8))
def test_drafts_are_those_of_a_tree_that_grows_token_by_token(
    said: list[tuple[list[int], list[int]]], settings: SuffixSettings, k: int
) -> None:
    requests = [recording(*item) for item in said]
    assert replayed(requests, settings, k, 8) == naive(requests, settings, k)


def test_drafts_are_those_that_arctic_inference_made() -> None:
    cases = json.loads(RECORDED.read_text(encoding="utf-8"))["cases"]
    assert len(cases) >= 30
    for case in cases:
        requests = [recording(*item) for item in case.pop("requests")]
        k, expected = case.pop("num_speculative_tokens"), case.pop("drafted_and_right")
        assert replayed(requests, SuffixSettings(**case), k, k) == [tuple(pair) for pair in expected]


@given(st.lists(st.integers(0, 6), max_size=60))
def test_the_written_out_order_of_children_is_that_of_the_linked_list(tokens: list[int]) -> None:
    children, latest, expected = Children(), dict[int, int](), []
    for position, token in enumerate(tokens):
        children.add(token)
        latest[token] = position
        expected.append(latest[children.first])
    assert first_children(tokens, list(range(len(tokens)))) == expected


def test_a_request_drafts_from_the_output_of_an_earlier_one_and_not_from_its_prompt() -> None:
    first = recording([1, 2, 3, 4], [10, 11, 12, 13])
    copies_output, copies_prompt = recording([], [10, 11, 12, 13]), recording([], [1, 2, 3, 4])
    settings = SuffixSettings(min_token_prob=0.4)
    # 10: a match of all that is known does not count. 10 11: 12 followed 11 once of two times. 10 11 12: 13, likewise,
    # but it is the last recorded token.
    assert replayed([first, copies_output], settings, 4, 4)[3:] == [(0, 0), (1, 1), (1, 0)]
    assert not any(pair[0] for pair in replayed([first, copies_prompt], settings, 4, 4)[3:])


def test_an_evicted_output_is_not_drafted_from() -> None:
    first, between = recording([], [10, 11, 12, 13]), recording([], [20, 21])
    again = recording([], [10, 11, 12, 13])
    kept, evicted = (SuffixSettings(max_cached_requests=number) for number in (3, 2))
    assert any(pair[0] for pair in replayed([first, between, again], kept, 4, 4)[4:])
    assert not any(pair[0] for pair in replayed([first, between, again], evicted, 4, 4)[4:])
