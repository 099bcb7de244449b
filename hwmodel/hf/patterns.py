"""Which modules a quantization names: plain names, globs and `re:` expressions, as the engines read them."""

from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate

from hwmodel.hf.expressions import PatternError, compiled

_MAX_PATTERNS = 20_000
_FEW = 32  # up to so many plain names, looking for each in the name beats taking the name apart
# Multimodal checkpoints put the language model one level down; the readers here name modules without that level.
_WRAPPERS = ("language_model.", "model.language_model.")

Matcher = Callable[[str], bool]


def matcher(patterns: Sequence[str]) -> Matcher:
    """A function that says whether a module name is meant by any of *patterns*.

    A plain name means the module itself, what lies in it, and any module whose path holds those parts in a row
    ("gate" means `mlp.gate`, not `gate_proj`). `*` and `?` make a glob over the whole name; `re:` an expression
    from the start of the name. Names are tried as they are and as a multimodal checkpoint would spell them.
    """
    if len(patterns) > _MAX_PATTERNS:
        raise PatternError(f"{len(patterns)} module patterns; allowed: up to {_MAX_PATTERNS}")
    plain, prefixes, globs, expressions = _sorted_out(patterns)
    holds = _holds_few(plain) if len(plain) <= _FEW else _holds_many(plain)

    def matches(name: str) -> bool:
        if name.startswith(prefixes) or (plain and holds(name)):
            return True
        if any(glob(name) for glob in globs):
            return True
        if not expressions:
            return False
        spellings = (name, *(wrapper + name for wrapper in _WRAPPERS))
        return any(expression(spelling) for expression in expressions for spelling in spellings)

    return matches


_Test = Callable[[str], object]


def _sorted_out(patterns: Iterable[str]) -> tuple[frozenset[str], tuple[str, ...], list[_Test], list[_Test]]:
    plain: set[str] = set()
    prefixes: list[str] = []
    globs: list[_Test] = []
    expressions: list[_Test] = []
    for pattern in patterns:
        name = _unwrapped(pattern)
        body = name.rstrip("*")
        if pattern.startswith("re:"):
            expressions.append(compiled(pattern.removeprefix("re:")).match)
        elif not _is_glob(name):
            plain.add(name.strip("."))
        elif not _is_glob(body):
            prefixes.append(body)  # most lists hold hundreds of these: one startswith answers for all
        else:
            globs.append(compiled(translate(name)).match)
            globs.append(compiled(translate(name + ".*")).match)
    return frozenset(plain - {""}), tuple(prefixes), globs, expressions


def _is_glob(name: str) -> bool:
    return "*" in name or "?" in name or "[" in name


def _unwrapped(name: str) -> str:
    for wrapper in ("model.language_model.", "language_model.model.", "language_model."):
        if name.startswith(wrapper):
            rest = name.removeprefix(wrapper)
            return rest if rest.startswith("lm_head") else "model." + rest
    return name


def _holds_few(plain: frozenset[str]) -> Matcher:
    dotted = tuple(f".{name}." for name in plain)

    def holds(name: str) -> bool:
        whole = f".{name}."
        return any(part in whole for part in dotted)

    return holds


def _holds_many(plain: frozenset[str]) -> Matcher:
    sizes = sorted({name.count(".") + 1 for name in plain})

    def holds(name: str) -> bool:
        parts = name.split(".")
        return any(".".join(parts[i : i + n]) in plain for n in sizes for i in range(len(parts) - n + 1))

    return holds
