"""An SVG drawing written anew from a list of what may be in one: whatever else is in it does not reach the page."""

import re
from html import escape
from xml.etree import ElementTree

from validate.report.text import safe

# No script, foreignObject, image, a, use, style or animation; no href, style, class or handler of events.
_ELEMENTS = "svg g path rect line circle text tspan defs clipPath linearGradient stop"
_ATTRIBUTES = (
    "x y x1 x2 y1 y2 dx dy cx cy r rx ry width height viewBox d transform fill fill-opacity stroke stroke-width"
    " stroke-opacity stroke-dasharray stroke-dashoffset stroke-linecap stroke-linejoin stroke-miterlimit opacity"
    " text-anchor font-size font-weight font-style clip-path id offset stop-color stop-opacity gradientUnits"
)
ELEMENTS, ATTRIBUTES = frozenset(_ELEMENTS.split()), frozenset(_ATTRIBUTES.split())
_NAMESPACE = "{http://www.w3.org/2000/svg}"
_LOCAL_URL = re.compile(r"url\(#([A-Za-z0-9_-]+)\)")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")
_DEFAULTS = {
    ("transform", "translate(0,0)"),
    ("opacity", "1"),
    ("fill-opacity", "1"),
    ("stroke-miterlimit", "10"),
    ("stroke-width", "0"),
    ("fill", "transparent"),
}
_NOTHING = "M0,0h0v0h0Z"


def cleaned(svg: str, prefix: str, alt: str, *, standalone: bool = False) -> str:
    """The drawing with only the elements and attributes above, ids behind `prefix`, and `alt` as its description.

    What a mark says of itself (`aria-label`) becomes its `<title>`, which browsers show when it is pointed at. As a
    page's figure it scales with the page; `standalone` keeps its size and is a file of its own.
    """
    root = ElementTree.fromstring(svg)
    sizes = f' width="{_number(root, "width")}" height="{_number(root, "height")}"' if standalone else ""
    space = ' xmlns="http://www.w3.org/2000/svg" font-family="Helvetica, Arial, sans-serif"' if standalone else ""
    head = f'<svg{space} viewBox="{safe(root.get("viewBox", ""))}"{sizes} role="img" aria-label="{safe(alt)}">'
    return head + "".join(_written(child, prefix) for child in root) + "</svg>"


def _number(root: ElementTree.Element, key: str) -> str:
    return f"{float(root.get(key, '0')):g}"


def _written(element: ElementTree.Element, prefix: str) -> str:
    """One element and what is inside it; an empty text where nothing of it can be seen."""
    tag = element.tag.removeprefix(_NAMESPACE) if isinstance(element.tag, str) else ""
    if tag not in ELEMENTS or element.get("d") == _NOTHING or element.get("display") == "none":
        return ""
    inner = safe(element.text or "") if tag in ("text", "tspan") else ""
    inner += "".join(_written(child, prefix) for child in element)
    label = element.get("aria-label")
    if label and element.get("aria-roledescription", "").endswith(" mark"):
        inner = f"<title>{safe(label)}</title>{inner}"
    attributes = "".join(_attribute(name, value, prefix) for name, value in element.attrib.items())
    if tag == "g" and (not inner or not attributes):
        return inner
    return f"<{tag}{attributes}>{inner}</{tag}>" if inner else f"<{tag}{attributes}/>"


def _attribute(name: str, value: str, prefix: str) -> str:
    """` name="value"`, or nothing where it may not or need not be there."""
    if name not in ATTRIBUTES or (name, value) in _DEFAULTS:
        return ""
    if name == "id":
        value = prefix + value
    elif "url(" in value.lower():
        match = _LOCAL_URL.fullmatch(value)
        if match is None:
            return ""
        value = f"url(#{prefix}{match[1]})"
    else:
        value = _LONG_NUMBER.sub(lambda found: f"{float(found[0]):.2f}", value)
    return f' {name}="{escape(value)}"'
