"""Drawings written anew: what may be in one is in it, anything else is not."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from validate.report.svg import ATTRIBUTES, ELEMENTS, cleaned

HEAD = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 10" width="10" height="10">'


def clean(inner: str) -> str:
    """What is left of a drawing's inside."""
    written = cleaned(f"{HEAD}{inner}</svg>", "p-", "a drawing")
    return written.partition(">")[2].removesuffix("</svg>")


def test_scripts_links_styles_and_handlers_are_gone() -> None:
    assert clean('<script>alert(1)</script><a href="x"><rect x="1"/></a><image href="http://x/y"/>') == ""
    assert clean('<rect x="1" onclick="alert(1)" style="fill:url(http://x)" class="c" href="y"/>') == '<rect x="1"/>'
    assert clean('<foreignObject><body xmlns="http://www.w3.org/1999/xhtml"/></foreignObject>') == ""


def test_only_urls_inside_the_drawing_stay_and_get_its_prefix() -> None:
    assert clean('<rect fill="url(http://x/y)"/><rect fill="url(#g1)"/>') == '<rect/><rect fill="url(#p-g1)"/>'
    assert clean('<rect fill="URL(http://x/y)"/><rect fill="url(&quot;x&quot;)"/>') == "<rect/><rect/>"
    assert (
        clean('<clipPath id="c1"><path d="M0,0h1"/></clipPath>') == '<clipPath id="p-c1"><path d="M0,0h1"/></clipPath>'
    )


def test_text_is_text() -> None:
    assert clean("<text>&lt;b&gt;\u202ex</text>") == "<text>&lt;b&gt;?x</text>"


def test_what_a_mark_says_is_its_title_and_axes_say_nothing() -> None:
    mark = '<path d="M1,1h1" role="graphics-symbol" aria-roledescription="rect mark" aria-label="k = 1: &lt;1&gt;"/>'
    axis = '<path d="M1,1h1" role="graphics-symbol" aria-roledescription="axis" aria-label="X-axis"/>'
    assert clean(mark) == '<path d="M1,1h1"><title>k = 1: &lt;1&gt;</title></path>'
    assert clean(axis) == '<path d="M1,1h1"/>'


def test_empty_groups_and_long_numbers_are_shortened() -> None:
    assert clean('<g><g transform="translate(0,0)"><path d="M0,0h0v0h0Z"/></g></g>') == ""
    assert clean('<path d="M1.23456,-7.891234e-7Z"/>') == '<path d="M1.23,-0.00Z"/>'


def test_a_long_path_stays_whole() -> None:
    path = "M0,0" + "L12.34,56.78" * 2000 + "Z"
    assert clean(f'<path d="{path}"/>') == f'<path d="{path}"/>'


def test_a_drawing_describes_itself() -> None:
    written = cleaned(f"{HEAD}</svg>", "", 'the "best" <k>')
    assert 'role="img" aria-label="the &quot;best&quot; &lt;k&gt;"' in written


NAMES = st.sampled_from(["g", "rect", "text", "script", "a", "style", "image", "animate", "set", "use", "svg"])
KEYS = st.sampled_from(["x", "fill", "href", "onload", "style", "id", "transform", "xlink", "class", "d"])
VALUES = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=20)


@st.composite
def elements(draw: st.DrawFn, depth: int = 3) -> ElementTree.Element:
    """Any tree of elements."""
    element = ElementTree.Element(draw(NAMES), draw(st.dictionaries(KEYS, VALUES, max_size=4)))
    element.text = draw(VALUES)
    if depth:
        element.extend(draw(st.lists(elements(depth - 1), max_size=3)))
    return element


@given(elements())
def test_whatever_comes_in_only_the_listed_elements_and_attributes_come_out(tree: ElementTree.Element) -> None:
    written = cleaned(f"{HEAD}{ElementTree.tostring(tree, encoding='unicode')}</svg>", "p-", "alt")
    for element in ElementTree.fromstring(written).iter():
        assert element.tag in ELEMENTS | {"title"}
        assert element.attrib.keys() <= ATTRIBUTES | {"role", "aria-label"}
