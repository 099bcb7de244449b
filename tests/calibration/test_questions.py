"""A question survives the profile that keeps it, and a changed one is refused by its place."""

from dataclasses import replace
from typing import Any

import pytest

from calibration.questions import Question, Setting, question_of
from hwmodel.errors import InputError

ASKED = Question("a.json", "tpot", 0.02, 0.03, Setting("ngram", 3, 1000, 500), 8.0, 1250.0, None, 0.2, True, "cell")


@pytest.mark.parametrize(
    "question",
    [
        ASKED,
        replace(ASKED, quantity="throughput", value=1234.5, tokens_per_step=1.5),
        replace(ASKED, quantity="allreduce_share", value=0.4, kind="fact"),
        replace(ASKED, setting=Setting("none", 0, 1, 2), draft_probability=1.0, with_prompts=False),
    ],
)
def test_a_kept_question_is_read_again_as_it_was(question: Question) -> None:
    assert question_of(question.to_dict(), "measurements[0]") == question


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"quantity": "speed"}, 'measurements[7].quantity: got "speed", allowed: tpot, step, throughput'),
        ({"value": 0.0}, "measurements[7].value: got 0.0"),
        ({"noise": -1}, "measurements[7].noise: got -1"),
        ({"requests": 0.5}, "measurements[7].requests: got 0.5"),
        ({"tokens_per_step": 0.1}, "measurements[7].tokens_per_step: got 0.1"),
        ({"draft_probability": 2}, "measurements[7].draft_probability: got 2"),
        ({"with_prompts": "yes"}, 'measurements[7].with_prompts: got "yes", allowed: true or false'),
        ({"setting": None}, "measurements[7].setting: got nothing, allowed: a table"),
        ({"setting": {"method": "magic"}}, 'measurements[7].setting.method: got "magic"'),
        ({"source": 5}, "measurements[7].source: got 5, allowed: a text"),
    ],
)
def test_a_changed_question_is_refused_by_its_place(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        question_of({**ASKED.to_dict(), **changes}, "measurements[7]")
    assert said in str(caught.value)


def test_a_label_tells_what_was_measured_in_a_few_words() -> None:
    assert ASKED.label == "TPOT at C=8, k=3, context 1250"
    assert ASKED.drafts
    assert replace(ASKED, setting=Setting("none", 0, 1, 2)).label == "TPOT at C=8, context 1250"
