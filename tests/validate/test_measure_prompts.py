"""Prompts: the shipped set, files of many tools, and an order that every cell shares."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.errors import InputError
from validate.measure.prompts import Order, Prompt, PromptSet, read_prompts, shipped_prompts


def written(tmp_path, content, name="prompts.jsonl"):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else "\n".join(json.dumps(item) for item in content))
    return read_prompts(str(path))


def one(tmp_path, record):
    found = written(tmp_path, [record]).prompts
    assert len(found) == 1
    return found[0]


def test_the_shipped_set_has_every_kind_in_equal_shares():
    kinds = shipped_prompts().to_dict()["kinds"]
    assert kinds == {"code": 8, "prose": 8, "chat": 8, "json": 8, "repetitive": 8}
    assert len({prompt.text for prompt in shipped_prompts().prompts}) == 40


def test_the_order_is_of_the_seed_and_kinds_take_turns():
    prompts = shipped_prompts()
    assert prompts.order(1) == prompts.order(1) != prompts.order(2)
    for start in range(0, 40, 5):
        assert len({prompt.kind for prompt in prompts.order(3)[start : start + 5]}) == 5


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=1), st.integers(0, 5))
def test_every_order_holds_every_prompt_once(sizes, seed):
    prompts = tuple(Prompt(text=f"{kind}{i}", kind=kind) for kind, size in sizes.items() for i in range(size))
    order = PromptSet(prompts, "", "").order(seed)
    assert sorted(order, key=str) == sorted(prompts, key=str)


def test_a_cell_takes_the_prompts_over_and_over():
    order = Order([Prompt(text="a"), Prompt(text="b")])
    assert [order.take() for _ in range(3)] == [(0, Prompt(text="a")), (1, Prompt(text="b")), (2, Prompt(text="a"))]


CHAT = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]


@pytest.mark.parametrize(
    ("record", "prompt"),
    [
        ("hello", Prompt(text="hello")),
        ({"prompt": "p", "max_tokens": 9}, Prompt(text="p", max_tokens=9)),
        ({"prompt": ["p", "q"]}, Prompt(text="p")),
        ({"prompt": [1, 2]}, Prompt(token_ids=(1, 2))),
        ({"prompt_token_ids": [3], "token_ids": [4]}, Prompt(token_ids=(3,))),
        ({"messages": CHAT, "category": "c"}, Prompt(messages=tuple(CHAT), kind="c")),
        ({"messages": [*CHAT, {"role": "assistant", "content": "a"}]}, Prompt(messages=tuple(CHAT))),
        ({"custom_id": "1", "body": {"messages": CHAT, "max_completion_tokens": 5}},
         Prompt(messages=tuple(CHAT), max_tokens=5)),
        ({"request": {"prompt": "p"}, "response": {"text": "no"}}, Prompt(text="p")),
        ({"conversations": [{"from": "human", "value": "h"}, {"from": "gpt", "value": "g"}]}, Prompt(text="h")),
        ({"turns": ["first", "second"], "category": "math"}, Prompt(text="first", kind="math")),
        ({"instruction": "do", "input": "this", "output": "no"}, Prompt(text="do\n\nthis")),
        ({"question": "q", "answer": "a"}, Prompt(text="q")),
        ({"prompt": "p", "max_tokens": -1, "kind": 3}, Prompt(text="p")),
    ],
)  # fmt: skip
def test_the_shapes_in_which_tools_record_requests(tmp_path, record, prompt):
    assert one(tmp_path, record) == prompt


def test_files_of_every_form_hold_the_same_prompts(tmp_path):
    texts = ["one", "two words"]
    forms = {
        "a.jsonl": "\n".join(json.dumps({"prompt": text}) for text in texts),
        "b.json": json.dumps([{"prompt": text} for text in texts]),
        "c.json": json.dumps({"prompts": texts}),
        "d.txt": "\n\n".join(texts),
        "e.toml": "".join(f"[[prompt]]\ntext = '{text}'\n" for text in texts),
        "f.json": "\ufeff" + json.dumps(texts),
    }
    for name, content in forms.items():
        assert [prompt.text for prompt in written(tmp_path, content, name).prompts] == texts, name


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no prompt in it"),
        ("{}", "no prompt in an object with nothing"),
        ('{"prompt": ""}', "no prompt in an object with prompt"),
        ('{"timestamp": 1, "input_length": 3}', "timestamp, input_length"),
        ('{"prompt": "a"}\n{"prompt": ', "line 2 is no JSON"),
        ("[1]", "got int"),
        ("[" * 100_000, "nested"),
        ('[[prompt]]\ntext = "a', "no TOML"),
    ],
)
def test_what_holds_no_prompt_is_one_line_that_names_the_place(tmp_path, content, words):
    with pytest.raises(InputError, match=words) as error:
        written(tmp_path, content)
    assert "\n" not in str(error.value)


@given(st.text(max_size=60))
def test_any_text_is_prompts_or_one_line(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "p.txt"
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    try:
        found = read_prompts(str(path)).prompts
    except InputError as error:
        found = [str(error)]
        assert "\n" not in found[0]
    assert found


def test_files_that_are_none_are_refused(tmp_path):
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    for path in (tmp_path, tmp_path / "none", tmp_path / "latin", "a\0b"):
        with pytest.raises(InputError, match="allowed"):
            read_prompts(str(path))
